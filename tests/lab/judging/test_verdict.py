import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.lab.judging.verdict import (
    LEGEND,
    MARKS,
    Missing,
    NetworkVerdict,
    SeedOutcome,
    Table,
    Verdict,
    finite,
    without_nan,
    word_for,
)

T, F, N = True, False, None


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ([], "no data"),
        ([N, N], "no data"),
        ([T], "holds so far"),
        ([T, T, N], "holds so far"),
        ([F, F], "fails so far"),
        ([T, F], "mixed so far"),
        ([T, T, T], "holds"),
        ([F, F, F, N], "fails"),
        ([T, T, F], "mixed"),
    ],
)
def test_three_seeds_decide_and_seeds_that_cannot_tell_do_not_count(outcomes, word) -> None:
    assert word_for(outcomes) == word


@given(st.lists(st.sampled_from([T, F, N]), max_size=6))
def test_order_of_seeds_does_not_matter(outcomes) -> None:
    assert word_for(outcomes) == word_for(outcomes[::-1])


def test_every_mark_is_explained() -> None:
    assert all(mark in LEGEND for mark in MARKS.values())


def network(*outcomes: tuple[float | None, bool | None], **fields) -> NetworkVerdict:
    seeds = tuple(SeedOutcome(seed, *outcome) for seed, outcome in enumerate(outcomes))
    return NetworkVerdict("net", seeds, **fields)


def test_a_network_has_median_range_and_words() -> None:
    judged = network((1.0, T), (5.0, T), (2.0, F), (None, N))
    assert (judged.value, judged.interval) == (2.0, (1.0, 5.0))
    assert (judged.word, judged.mark, judged.words) == ("mixed", "◐", "mixed (3 seeds)")
    assert network((1.0, T)).words == "holds so far (1 seed)"
    assert network((1.0, F), (1.0, F)).words == "fails so far (2 seeds)"
    assert network().words == "no data"
    assert network().value is None and network().interval is None


@pytest.mark.parametrize(
    ("unseen", "words"),
    [
        (None, "holds (3 seeds)"),
        ((), "holds (3 seeds, none unseen)"),
        ((1, 3), "holds (3 seeds, 1 unseen)"),  # seed 3 cannot tell
        ((0, 1, 2), "holds (3 seeds, all unseen)"),
    ],
)
def test_words_say_how_many_seeds_were_unseen(unseen, words: str) -> None:
    assert network(*[(1.0, T)] * 3, (None, N), unseen=unseen).words == words


def test_a_label_names_variant_and_part() -> None:
    judged = network(variant={"decay": 0.001}, part="K-Q")
    assert judged.label == "net, decay 0.001, K-Q"


def test_a_missing_run_is_named_with_its_reason() -> None:
    decays = ("net, decay 0.1", "net, decay 0.01", "net, decay 0")
    lack = Missing("paper/x", "net", decays, (1, 2), "was not run")
    sentence = lack.sentence("a net")
    assert sentence == "A net, seeds 1 and 2, at decays 0, 0.01 and 0.1 was not run"
    one = replace(lack, runs=("net, algorithm", "net, decay 1"), seeds=(5,))
    assert one.sentence("a net") == "A net, seed 5 (algorithm; decay 1) was not run"
    assert replace(one, runs=("net",)).sentence("a net") == "A net, seed 5 was not run"


def test_values_are_those_of_the_seeds_that_count() -> None:
    judged = network((1.0, T), (2.0, N), (3.0, T))
    assert (judged.known_seeds, judged.interval, judged.value) == ((0, 2), (1.0, 3.0), 2.0)
    assert network((2.0, N)).interval is None


def test_networks_of_one_name_are_told_apart_by_their_experiment() -> None:
    titles = [NetworkVerdict("net", (), f"paper/{name}", part="K-Q").title for name in "xy"]
    assert titles == ["x: net, K-Q", "y: net, K-Q"]
    assert NetworkVerdict("net", (), "paper/net", {"decay": 0.1}).title == "net, decay 0.1"


def test_a_verdict_survives_json() -> None:
    judged = network((0.5, T), (None, N), variant={"decay": 0.1}, experiment="p/x", unseen=(1,))
    verdict = Verdict(
        "P1-first",
        "it falls",
        "< 1",
        "share",
        networks=(judged, network((1.0, F))),
        missing=(Missing("p/x", "net", ("a",), (2,), "failed"),),
        remarks=("a remark",),
        tables=(Table(("a", "b"), ((1, None), (2.5, "x")), "title"),),
        headline="P1",
        ours=True,
    )
    stored = json.loads(json.dumps(verdict.to_json()))
    assert stored["networks"][0]["verdict"] == "holds so far"
    assert Verdict.from_json(stored) == verdict


def test_numbers_that_are_not_finite_become_none() -> None:
    assert finite(float("nan")) is None and finite(None) is None and finite(2) == 2.0
    table = without_nan(Table(("a",), ((float("nan"),), (1.0,))))
    assert table.rows == ((None,), (1.0,))
