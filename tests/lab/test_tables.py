from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table as RichTable

from rankscope.lab.catalogue import Entry
from rankscope.lab.results import phrases
from rankscope.lab.tables import (
    duration,
    evidence,
    experiment_table,
    network_outcome,
    range_over,
    verdict_table,
    waits,
)
from rankscope.lab.verdict import Outcome, Table, Verdict, judge, undecided


def printed(*things: str | RichTable, width: int = 120) -> list[list[str]]:
    console = Console(width=width)
    with console.capture() as capture:
        for thing in things:
            console.print(thing)
    return [line.split() for line in capture.get().splitlines() if line.strip()]


THREE = {0: (0.5, True), 1: (0.25, True), 2: (1.0, True)}


def test_verdicts() -> None:
    one = judge("B3", "times [agree]", {"head": THREE}, bound="<= 1", quantity="gap [s]")
    two = judge("B4", "law", {"uv": THREE, "gd": {0: (3.0, False)}}, bound="<= 1")
    rows = printed(verdict_table([one, two, undecided("B5", "stable", "no runs")]))[2:]
    assert rows == [
        ["B3", "times", "[agree]", "yes", "0.5"],
        ["gap", "[s];", "bound", "<=", "1;", "0.25", "to", "1"],
        ["B4", "law", "undecided", "0.75"],
        ["bound", "<=", "1"],
        # of one seed there is no range
        ["uv", "yes", "(0.25", "to", "1);", "gd", "met", "in", "0", "of", "1"],
        ["B5", "stable", "undecided", "-"],
        ["no", "runs"],
    ]


@pytest.mark.parametrize(
    ("mets", "said"),
    [
        ((True, True, True), "yes"),
        ((False, False, False), "no"),
        ((True, True), "met in 2 of 2"),
        ((False,), "met in 0 of 1"),
        ((True, False, None), "met in 1 of 2, cannot tell in 1"),
        ((None, None), "cannot tell in 2"),
    ],
)
def test_an_undecided_network_counts_its_seeds(mets: tuple[bool | None, ...], said: str) -> None:
    """In the words of the tables in the documents."""
    seeds: dict[int, Outcome] = {seed: (1.0, met) for seed, met in enumerate(mets)}
    judged = judge("B3", "", {"uv": seeds}, bound="")
    assert network_outcome(judged.networks[0]) == said
    assert phrases.outcome(judged) == (said if said in {"yes", "no"} else f"undecided: uv {said}")


def test_a_network_without_seeds_is_undecided() -> None:
    assert network_outcome(judge("B3", "", {"uv": {}}, bound="").networks[0]) == "undecided"


@pytest.mark.parametrize(
    ("judged", "waiting"),
    [
        (undecided("B5", "", "no runs"), True),
        (judge("B5", "", {"uv": THREE, "gd": {0: (1.0, True)}}, bound=""), True),
        (judge("B5", "", {"uv": THREE, "gd": {**THREE, 0: (1.0, False)}}, bound=""), False),
        (replace(judge("B5", "", {"uv": THREE}, bound=""), holds="undecided"), False),
        (
            replace(
                judge("B5", "", {"uv": THREE}, bound="", evidence=["without gd: was not run"]),
                holds="undecided",
            ),
            True,
        ),
        (
            judge("B5", "", {"uv": THREE}, bound="", evidence=["without gd: was not run"]),
            False,
        ),
    ],
)
def test_an_undecided_claim_waits_for_runs_that_are_not_there(
    judged: Verdict, waiting: bool
) -> None:
    """As in the count beside the tables in the documents."""
    assert waits(judged) == waiting


def test_a_single_network_is_named_where_it_says_more_than_the_verdict() -> None:
    few = judge("B3", "law", {"uv": {0: (0.5, True), 1: (0.25, True)}}, bound="< 1")
    lost = replace(judge("B4", "law", {"uv": THREE}, bound="<= 1"), holds="undecided")
    close = judge("B5", "law", {"uv": {0: (0.99801, True), 1: (0.99802, True)}}, bound="< 1")
    assert printed(verdict_table([few, lost, close]))[2:] == [
        ["B3", "law", "undecided", "0.375"],
        ["bound", "<", "1"],
        ["uv", "met", "in", "2", "of", "2", "(0.25", "to", "0.5)"],
        ["B4", "law", "undecided", "0.5"],
        ["bound", "<=", "1"],
        ["uv", "yes", "(0.25", "to", "1)"],
        ["B5", "law", "undecided", "0.998"],
        ["bound", "<", "1"],
        ["uv", "met", "in", "2", "of", "2"],
    ]


def test_verdicts_fit_a_terminal_of_80_columns() -> None:
    """No word is broken and no column vanishes, with the longest key, bound and value."""
    sentence = "loss falls in stages: plateaus and drops that are sharper the smaller alpha"
    bound = ">= 0.05; a(end) / max a >= 0.8 (true), <= 0.6 (random)"
    one = judge("B1-saturated", sentence, {"uv": {0: (-1.23e-10, None)}, "gd": {}}, bound=bound)
    rows = printed(verdict_table([one]), width=80)
    found = [word for row in rows[2:] for word in row]
    assert found[0] == "B1-saturated" and {"undecided", "-1.23e-10"} <= set(found)
    assert {*sentence.split(), *bound.split()} <= set(found)


def test_the_range_says_whether_networks_are_in_it() -> None:
    one = judge("B3", "", {"head": THREE}, bound="")
    two = judge("B4", "", {"uv": THREE, "gd": THREE}, bound="")
    assert range_over([one]) == "range over seeds"
    assert range_over([one, two]) == "range over seeds and networks"


def test_evidence() -> None:
    table = Table(("stage", "time", "resolved"), ((1, 0.123456, True), ("[end]", None, False)), "T")
    judged = Verdict("B3", "", "undecided", evidence=("see [1]",), tables=(table,))
    lines = printed(*evidence(judged))
    assert lines[:3] == [["B3:", "see", "[1]"], ["B3:", "T"], ["stage", "time", "resolved"]]
    assert lines[4:] == [["1", "0.1235", "yes"], ["[end]", "-", "no"]]


def test_experiments() -> None:
    lines = printed(
        experiment_table(
            [
                Entry("paper/a", "What it is.", "small", 95, "2 cores", 3, 12, 5, 7),
                Entry("paper/a", "What it is.", "smoke", None, "2 cores", 1, 4, 4),
                Entry("paper/b", "Another.", "small", 60, "a GPU", 3, 3, 3),
                Entry("paper/b", "Another.", "smoke", 5, "2 cores", 1, 1, 1),
            ]
        )
    )
    assert lines[2:] == [
        ["paper/a"],
        ["What", "it", "is."],
        ["small", "2", "min,", "2", "cores", "4", "x", "3", "seeds", "5", "of", "12"],
        ["7", "kept"],
        ["smoke", "?", "4", "x", "1", "seeds", "all"],
        ["paper/b"],
        ["Another."],
        ["small", "60", "s,", "a", "GPU", "1", "x", "3", "seeds", "all"],
        ["smoke", "5", "s,", "2", "cores", "1", "x", "1", "seeds", "all"],
        ["paper"],
        ["All", "of", "it:", "rankscope", "reproduce", "paper"],
        ["small", "3", "min,", "2", "cores", "and", "a", "GPU", "15", "8", "of", "15"],
        ["7", "kept"],
        ["smoke", "?", "5", "all"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (3, "3 s"), (89, "89 s"), (90, "2 min"), (330.0, "6 min"), (10800, "3 h")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
