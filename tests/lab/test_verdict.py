import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.lab.verdict import Table, Verdict, decide, judge, overall, undecided

few = settings(max_examples=25, deadline=None)
outcomes = st.lists(st.sampled_from([True, False, None]), max_size=6)
holds = st.lists(st.sampled_from(["yes", "no", "undecided"]), max_size=5)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        ([True] * 3, "yes"),
        ([True] * 5, "yes"),
        ([False] * 3, "no"),
        ([True, True, False], "undecided"),
        ([False, False, True], "undecided"),
        ([True] * 2, "undecided"),
        ([False] * 2, "undecided"),
        ([], "undecided"),
        ([True, True, None, True], "undecided"),
        ([False, False, None, False], "undecided"),
    ],
)
def test_the_rule(met: list[bool | None], expected: str) -> None:
    assert decide(met) == expected


@few
@given(outcomes, st.randoms())
def test_the_order_of_seeds_does_not_matter(met: list[bool | None], random) -> None:
    shuffled = list(met)
    random.shuffle(shuffled)
    assert decide(shuffled) == decide(met)


@few
@given(outcomes)
def test_turning_every_outcome_turns_the_verdict(met: list[bool | None]) -> None:
    turned = {"yes": "no", "no": "yes", "undecided": "undecided"}
    assert decide([None if each is None else not each for each in met]) == turned[decide(met)]


@few
@given(outcomes, st.sampled_from([True, False, None]))
def test_one_more_seed_never_turns_a_verdict_round(met: list[bool | None], one: bool) -> None:
    assert {decide(met), decide([*met, one])} != {"yes", "no"}


@few
@given(holds)
def test_the_overall_yes_needs_all_networks(networks: list[str]) -> None:
    found = overall(networks)
    assert (found == "yes") == (len(networks) > 0 and all(each == "yes" for each in networks))
    assert (found == "no") == any(each == "no" for each in networks)


def test_judging_seeds_of_two_networks() -> None:
    verdict = judge(
        "B3",
        "times agree",
        {
            "one": {2: (0.3, np.bool_(True)), 0: (np.float64(0.1), True), 1: (0.2, True)},
            "two": {0: (4, True), 1: (math.nan, None), 2: (math.inf, False)},
        },
        bound="<= 5",
        quantity="s",
    )
    one, two = verdict.networks
    assert [each.seed for each in one.seeds] == [0, 1, 2]
    assert (one.holds, one.value, one.interval) == ("yes", 0.2, (0.1, 0.3))
    assert (two.holds, two.value, two.interval) == ("undecided", 4.0, (4.0, 4.0))
    assert [(each.value, each.met) for each in two.seeds] == [
        (4.0, True),
        (None, None),
        (None, False),
    ]
    assert verdict.holds == "undecided"
    assert verdict.interval == (0.1, 4.0) and verdict.value == pytest.approx(0.25)


def test_networks_apart_are_judged_and_not_summarised() -> None:
    outcomes = {
        "one": {0: (0.1, True), 1: (0.2, True), 2: (0.3, True)},
        "other": {0: (70, False), 1: (80, False), 2: (90, False)},
    }
    verdict = judge("B3", "", outcomes, bound="", apart=("other",))
    assert (verdict.value, verdict.interval) == (0.2, (0.1, 0.3))
    assert (verdict.networks[1].value, verdict.networks[1].interval) == (80.0, (70.0, 90.0))
    assert verdict.holds == "no"
    alone = judge("B3", "", outcomes, bound="", apart=("one", "other"))
    assert (alone.value, alone.interval, alone.holds) == (None, None, "no")


def test_nothing_measured_is_undecided() -> None:
    for verdict in (judge("B1", "", {}, bound=""), judge("B1", "", {"one": {}}, bound="")):
        assert (verdict.holds, verdict.value, verdict.interval) == ("undecided", None, None)
    assert undecided("B1", "so it is", "no runs").evidence == ("no runs",)


values = st.one_of(st.none(), st.floats(width=32), st.integers(-5, 5))
measured = st.dictionaries(
    st.text(max_size=3),
    st.dictionaries(
        st.integers(0, 9), st.tuples(values, st.one_of(st.none(), st.booleans())), max_size=4
    ),
    max_size=3,
)


@few
@given(measured)
def test_there_and_back_through_json(outcomes) -> None:
    table = Table(("stage", "error", "resolved"), ((1, 0.5, True), ("last", None, False)), "times")
    verdict = judge("B2", "one", outcomes, bound="= 1", evidence=["a", "b"], tables=[table])
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert Verdict.from_json(json.loads(text)) == verdict


def test_cells_that_are_no_numbers_are_empty() -> None:
    table = Table(("a", "b", "c"), ((math.nan, "nan", math.inf), (np.float64("nan"), 0, True)))
    judged = judge("B1", "", {}, bound="", tables=[table])
    assert judged.tables[0].rows == ((None, "nan", math.inf), (None, 0, True))


def test_what_is_not_finite_is_null() -> None:
    table = Table(("time",), ((math.inf,), (1.0,)))
    plain = Verdict("B1", "", "no", value=math.nan, interval=(0.0, math.inf), tables=(table,))
    stored = plain.to_json()
    assert (stored["value"], stored["interval"]) == (None, [0.0, None])
    assert stored["tables"][0]["rows"] == [[None], [1.0]]


def test_a_verdict_on_nothing_says_so() -> None:
    verdict = judge("B4", "it is conserved", {}, bound="< 1")
    assert verdict.holds == "undecided"
    assert verdict.evidence == ("nothing that it speaks of was run",)
