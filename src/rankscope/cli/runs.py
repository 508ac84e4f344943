"""Commands for runs of one's own: show, report, check."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rankscope.cli.options import RUNS, app, local, typed_command
from rankscope.cli.tables import print_table


@app.command()
def show(
    path: Annotated[
        Path, typer.Argument(callback=local, help="A run that a tracker wrote, or a checkpoint.")
    ],
    base: Annotated[
        Path | None,
        typer.Option(callback=local, help="Checkpoint that the change is measured from."),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="Column to sort by, largest first, such as change.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show norm, ranks and change of every matrix of a run or a checkpoint."""
    from rankscope.store import is_run
    from rankscope.tables import summary

    if not path.exists():
        raise ValueError(f"{path} does not exist; give a run that a tracker wrote, or a checkpoint")
    if is_run(path):
        if base is not None:
            raise ValueError(f"{path} is a run and has a reference of its own; leave --base out")
    elif path.is_dir() and (run := _first_run(path)):
        raise ValueError(
            f"{path} is a folder of runs; name one, such as {run}, or type "
            f"rankscope view {path} or rankscope report {run}"
        )
    table = summary(path, reference=base, sort=sort)
    if json:
        typer.echo(table.reset_index().to_json(orient="records", indent=1))
        return
    from rich.console import Console

    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.run_page import run_facts, table_rows
    from rankscope.store import open as open_run

    console = Console()
    table["shape"] = table["shape"].str.replace(" ", "")
    columns = ("matrix", *(column.replace("_", " ") for column in table.columns))
    content = Table(columns, tuple(table_rows(table)))
    print_table(content, title=str(path), least=("kind", "tail exponent", "shape"))
    for fact in run_facts(open_run(path)) if is_run(path) else ():
        console.print(fact, highlight=False, markup=False)


def _first_run(folder: Path) -> Path | None:
    """Return the first run in a folder, or in folders that hold nothing but folders."""
    from rankscope.store import is_run

    children = sorted(folder.iterdir())
    if run := next((child for child in children if is_run(child)), None):
        return run
    if not all(child.is_dir() and not child.is_symlink() for child in children):
        return None
    return next((run for child in children if (run := _first_run(child))), None)


@app.command()
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Runs of your own, or the laboratory's folder and perhaps a paper.",
            show_default="runs",
        ),
    ] = None,
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None,
        typer.Option(help="Scale of the runs.", show_default="small; paper for an archive"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=local,
            help="Page on runs of your own.",
            show_default="RUN.html beside the first",
        ),
    ] = None,
) -> None:
    """Write a report from runs that are stored; nothing is run.

    **rankscope report runs/first** reports on a run that a tracker wrote: ranks, heads, alignments,
    what moved most. Give several runs to compare them.

    **rankscope report** reports on the papers' experiments in the folder runs, **rankscope report
    runs yunis2024** on one paper, **rankscope report results** on the archived runs of scale paper.
    """
    from rankscope.lab.commands import report_again, report_on_runs
    from rankscope.store import is_run

    folder, *others = [path.expanduser() for path in paths or [RUNS]]
    if paths and not folder.exists():
        raise ValueError(
            f"{folder} does not exist; give a run, or a folder of the laboratory's runs"
        )
    if is_run(folder):
        report_on_runs([folder, *others], out, command=typed_command())
        return
    if len(others) > 1:
        raise ValueError(f"{folder} is not a run; give runs, or one folder and perhaps a paper")
    paper = str(others[0]) if others else None
    if not report_again(paper, scale, folder, command=typed_command()):
        raise typer.Exit(1)


@app.command()
def check(
    runs: Annotated[
        Path,
        typer.Argument(callback=local, help="A run, an archive of one, or a folder of runs."),
    ],
) -> None:
    """Read all that is stored of runs, compare it with its checksums, name what is damaged.

    The exit code is 1 if anything is damaged.
    """
    from rankscope.lab.running.integrity import check_runs

    reports = check_runs(runs)
    for report in reports:
        for line in report.lines():
            typer.echo(line)
    if any(report.damage for report in reports):
        raise typer.Exit(1)
