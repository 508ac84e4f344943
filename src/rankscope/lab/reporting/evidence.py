"""The command that prints the measurements behind a study's claims, from archived runs."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rankscope.lab.archive.archived_files import is_archive
from rankscope.lab.experiment import Study
from rankscope.lab.judging.available_runs import load_runs
from rankscope.lab.judging.selected_runs import Runs, all_runs
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.reporting.terminal import filled_table, plain_table

Row = tuple[Cell, ...]

# Makes a table of a study's runs, or of the data sets in a folder. The first line of its docstring
# is the heading.
Measure = Callable[[Runs], Table]
DataMeasure = Callable[[Path], Table]

LEAST_WIDTH = 120  # characters; rich cuts what does not fit


def main(
    study: Study,
    measures: Mapping[str, Sequence[Measure]],
    *,
    with_data: Mapping[str, Sequence[DataMeasure]] | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Print the tables of the claims named on the command line, or a list of all tables.

    measures: by claim. with_data: measures that need data sets, by claim.
    arguments: instead of those of the command line.
    """
    parser, with_data = _parser(study.name), with_data or {}
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.claims) - set(measures)):
        parser.error(f"no tables for {', '.join(unknown)}; choose from {', '.join(measures)}")
    console = wide_console()
    if not options.all and not options.claims:
        console.print(list_measures(measures, with_data))
        return
    if not is_archive(options.results):
        parser.error(
            f"{options.results} holds no archived runs; start this in a checkout of rankscope, or "
            "pass the folder with --results"
        )
    runs, _ = load_runs(study.experiments, options.results).select(all_runs)
    for claim in measures if options.all else options.claims:
        for measure in measures[claim]:
            print_table(f"{claim}. {heading(measure)}", measure(runs), console)
        for data_measure in with_data.get(claim, ()):
            title = f"{claim}. {heading(data_measure)}"
            if options.data is None:
                console.print(f"{title} Pass --data FOLDER.", markup=False, highlight=False)
                continue
            try:
                print_table(title, data_measure(options.data), console)
            except ValueError as error:  # the data set is not there, or not whole
                parser.error(str(error))


def _parser(paper: str) -> argparse.ArgumentParser:
    module = f"rankscope.lab.papers.{paper}.evidence"
    parser = argparse.ArgumentParser(f"python -m {module}", description=f"Evidence of {paper}.")
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="none: list all tables")
    parser.add_argument("--all", action="store_true", help="print the tables of every claim")
    parser.add_argument("--results", type=Path, default="results", help="folder of archived runs")
    parser.add_argument("--data", type=Path, help="folder of data sets, for tables that need them")
    return parser


def wide_console() -> Console:
    """Return a console as wide as the terminal, and at least as any table."""
    return Console(width=max(Console().width, LEAST_WIDTH))


def heading(measure: Measure | DataMeasure) -> str:
    """Return the first line of a measure's docstring."""
    return (measure.__doc__ or "").partition("\n")[0]


def print_table(title: str, content: Table, console: Console) -> None:
    """Print a table with its numbers aligned to the right."""
    table = filled_table(content, title=content.title)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(title, markup=False, highlight=False, style="bold")
    console.print(table)


def list_measures(
    measures: Mapping[str, Sequence[Measure]], with_data: Mapping[str, Sequence[DataMeasure]]
) -> RichTable:
    """Return a table of claims and the headings of their tables."""
    table = plain_table("claim", "tables")
    for claim in measures:
        headings = [*map(heading, measures[claim]), *map(heading, with_data.get(claim, ()))]
        table.add_row(claim, escape("\n".join(headings)))
    return table


def out_of(count: int, total: int) -> str:
    """Return "3 of 14"."""
    return f"{count} of {total}"
