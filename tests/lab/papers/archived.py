"""Tables of evidence and verdicts on the archived runs of the repository, each made once."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope.lab.judging.available_runs import AvailableRuns, load_runs
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.selected_runs import all_runs
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import Cell, Table, Verdict
from rankscope.lab.reporting.evidence import Measure

RESULTS = Path(__file__).parents[3] / "results"


@cache
def archive(paper: str) -> AvailableRuns:
    """Read the archived runs of a paper."""
    study = import_module(f"rankscope.lab.papers.{paper}").study("paper")
    return load_runs(study.experiments, RESULTS)


@cache
def table(measure: Measure) -> Table:
    """Make the table of a measure from the archived runs of its paper."""
    paper = measure.__module__.split(".")[3]
    runs, _ = archive(paper).select(all_runs)
    return measure(runs)


@cache
def verdict(paper: str, rule: Rule) -> Verdict:
    """Judge a claim on the archived runs."""
    return judge(rule, archive(paper))


def evidence(paper: str, rule: Rule, *, network: str = "") -> list[dict[str, Any]]:
    """Return the rows behind a verdict, of one network if it is named."""
    rows = by_name(verdict(paper, rule).tables[0])
    return [row for row in rows if network in ("", row["network"])]


def by_name(made: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings of column to cell."""
    return [dict(zip(made.columns, row, strict=True)) for row in made.rows]


def share(count: Cell) -> float:
    """Return 0.5 for "3 of 6"."""
    met, total = str(count).split(" of ")
    return int(met) / int(total)


def check_tables(measures: dict[str, tuple[Measure, ...]]) -> None:
    """Every table is whole, has a title, finite numbers and a heading of its own."""
    distinct = {measure for group in measures.values() for measure in group}
    assert len({measure.__doc__ for measure in distinct}) == len(distinct)
    for measure in distinct:
        made, heading = table(measure), str(measure.__doc__).partition("\n")[0]
        assert heading.endswith(".") and made.rows and made.title, measure
        assert {len(row) for row in made.rows} == {len(made.columns)}, measure
        numbers = [cell for row in made.rows for cell in row if isinstance(cell, float)]
        assert all(abs(number) < float("inf") for number in numbers), measure
