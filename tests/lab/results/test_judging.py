import pytest
import xarray as xr

from lab.results.toy_results import NAME, use_toys
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_papers.paper2000 import paper
from rankscope.lab.findings import subject_of
from rankscope.lab.results.judging import (
    disagreements,
    inputs_of,
    judge_subject,
    outcomes,
    subjects,
)
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.lab.verdict import judge

SUBJECT = subject_of(experiment("paper"))


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)


def done(sha256: str) -> Done:
    return Done("", "", "", "", 0.0, "", sha256, 0)


def test_places_of_which_something_is_kept() -> None:
    some = Ledger({(NAME, "rates/fast", 0): done("a")})
    assert [subject.name for subject in subjects([paper("paper")], some)] == ["paper2000", NAME]
    assert subjects([paper("paper")], Ledger()) == []


def test_a_place_is_judged_and_not_drawn() -> None:
    run = xr.Dataset({"loss": ("time", [1.0, 0.1])})
    shelf = {"rates/fast": {0: run}, "rates/slow": {0: run}}
    findings = judge_subject(SUBJECT, {NAME: shelf})
    assert [verdict.claim for verdict in findings.verdicts] == ["P1", "P2"]
    assert findings.drawings == findings.faults == ()


def test_figures_depend_on_every_file_of_their_place() -> None:
    one = {(NAME, "rates/fast", 0): done("a")}
    first = inputs_of(SUBJECT, Ledger(one))
    assert inputs_of(SUBJECT, Ledger({**one, ("other/run", "x", 0): done("a")})) == first
    assert inputs_of(SUBJECT, Ledger({(NAME, "rates/fast", 0): done("b")})) != first
    assert inputs_of(SUBJECT, Ledger({**one, (NAME, "rates/slow", 0): done("b")})) != first


def test_what_is_said_by_every_seed() -> None:
    mixed = {0: (0.1, True), 1: (0.1, False), 2: (0.1, None)}
    assert [*outcomes([judge("P1", "", {"a": mixed}, bound="")])] == [
        ("P1", "undecided"),
        ("P1, a, seed 0", "met"),
        ("P1, a, seed 1", "not met"),
        ("P1, a, seed 2", "cannot tell"),
    ]


STORED = {"value": 0.1, "bound": "< 0.2", "met": True, "tables": [["fast", 3, None, "at 0.512"]]}


@pytest.mark.parametrize(
    "other",
    [
        {"value": 0.1 * (1 + 1e-5)},
        {"tables": [["fast", 3, None, "at 0.513"]]},  # the last of three digits
    ],
)
def test_what_another_machine_may_say(other: dict[str, object]) -> None:
    assert not [*disagreements(STORED, {**STORED, **other})]


@pytest.mark.parametrize(
    ("other", "where"),
    [
        ({"value": 0.1001}, "value"),
        ({"value": None}, "value"),
        ({"bound": "< 0.2001"}, "bound"),
        ({"met": False}, "met"),
        ({"met": 1}, "met"),
        ({"tables": [["fast", 4, None, "at 0.512"]]}, "tables[0][1]"),
        ({"tables": [["fast", 3, 0.0, "at 0.512"]]}, "tables[0][2]"),
        ({"tables": [["fast", 3, None, "at 0.6"]]}, "tables[0][3]"),
        ({"tables": [["fast", 3, None, "by 0.512"]]}, "tables[0][3]"),
        ({"tables": []}, "tables"),
        ({"more": 1}, ""),
    ],
)
def test_what_is_another_verdict(other: dict[str, object], where: str) -> None:
    assert [subject for subject, _, _ in disagreements(STORED, {**STORED, **other})] == [where]


def test_a_claim_is_named() -> None:
    one, two = ({"verdicts": [{"claim": "P1", "holds": said}]} for said in ("yes", "no"))
    assert [*disagreements(one, two)] == [("verdicts[P1].holds", "yes", "no")]
