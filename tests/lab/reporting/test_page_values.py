import pytest

from rankscope.lab.judging.verdict import NetworkVerdict, SeedOutcome, Table, Verdict
from rankscope.lab.reporting.page_values import (
    NO_DATA,
    PageText,
    PageValue,
    as_count,
    as_factor,
    as_percent,
    fill_values,
)

EVIDENCE = Table(
    ("network", "seed", "block", "growth"),
    (("net, K-Q", 0, 1, 1.25), ("net, K-Q", 0, 2, 2.5), ("net, V-O", 0, 1, 0.5)),
)
OUTCOMES = (SeedOutcome(0, 0.5, True), SeedOutcome(1, None, None), SeedOutcome(2, 0.75, True))
NETWORK = NetworkVerdict("net", OUTCOMES, part="K-Q")
VERDICT = Verdict("P1", "it grows", networks=(NETWORK,), tables=(EVIDENCE,))


def text(**fields) -> str:
    return PageValue("x", **({"claim": "P1"} | fields)).text((Verdict("P0", "no"), VERDICT))


def test_a_number_is_the_median_of_a_column() -> None:
    assert text(column="growth", network="net, K-Q") == "1.9"
    assert text(column="growth", reduce=min) == "0.5"
    assert text(column="growth", rows=lambda row: row["block"] == 2) == "2.5"


def test_without_a_column_it_is_the_median_over_seeds() -> None:
    assert text() == text(network="net, K-Q") == "0.62"
    assert text(reduce=len) == "2"


@pytest.mark.parametrize("fields", [{"claim": "P2"}, {"claim": "P0", "column": "growth"}])
def test_where_nothing_was_run_there_is_no_data(fields) -> None:
    assert text(**fields) == NO_DATA
    assert text(network="net, V-O") == text(column="growth", network="other") == NO_DATA


def test_numbers_are_written_as_people_read_them() -> None:
    assert [as_percent(share) for share in (1.0, 0.881, 0.00123)] == ["100%", "88%", "0.12%"]
    assert (as_factor(0.0), as_count(7.0)) == ("1", "7")


def test_only_numbers_between_markers_of_known_names_change() -> None:
    page = (
        "a <!-- value: x -->1<!-- / --> b <!-- value: y -->2<!-- / -->, <!-- value: x --><!-- / -->"
    )
    filled = fill_values(page, {"x": "0.5"})
    assert filled == page.replace("-->1<", "-->0.5<").replace("--><", "-->0.5<")
    assert fill_values(filled, {"x": "0.5"}) == filled


def test_sentences_wait_for_the_values_they_need() -> None:
    waiting = PageText("x", needs=("a", "b"), text="a is there", otherwise="not yet")
    assert waiting.content({"a": "1", "b": NO_DATA}) == "not yet"
    assert waiting.content({"a": "1", "b": "2"}) == "a is there"
