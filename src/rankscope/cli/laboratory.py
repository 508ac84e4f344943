"""Commands that run, list and archive the experiments of the papers."""

from pathlib import Path
from typing import Annotated, no_type_check

import typer

from rankscope.cli.options import (
    RESULTS,
    RUNS,
    DataOption,
    DeviceOption,
    JobsOption,
    OnOption,
    OutOption,
    ScaleOption,
    SeedOption,
    app,
    local,
    typed_command,
)


@app.command()
def demo(
    out: Annotated[
        Path,
        typer.Option(callback=local, help="Folder for the runs; the report is in OUT/demo."),
    ] = RUNS,
    jobs: JobsOption = None,
) -> None:
    """Run a few experiments of both papers and show what they say, in minutes.

    A VGG learns digits and a Transformer Python source code, at two weight decays each. A diagonal
    attention head learns in stages. **rankscope reproduce** uses these runs again.
    """
    from rankscope.lab.papers.demo import demo as run_demo

    if not run_demo(out, command=typed_command(), jobs=jobs):
        raise typer.Exit(1)


@app.command()
def run(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A name from **rankscope list**, the import path of a module, or a Python file."
        ),
    ],
    scale: ScaleOption = "small",
    seed: SeedOption = None,
    out: OutOption = RUNS,
    jobs: JobsOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    on: OnOption = "here",
    json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Run an experiment, judge its claims, draw its figures.

    Finished runs are not repeated. An interrupted run continues. If a run's declaration has
    changed, it runs again and the earlier result is moved aside. Verdicts and figures are written
    to OUT/EXPERIMENT/SCALE.

    The exit code is 0 whatever the verdicts are, and 1 if a run, a claim or a figure failed.
    """
    from rankscope.lab.catalogue import load
    from rankscope.lab.commands import run_experiment
    from rankscope.lab.running.placement import choose_placement

    study = load(experiment, scale)
    seeds = tuple(dict.fromkeys(seed)) if seed else None
    where = choose_placement(device=device, data=data, on=on)
    if not run_experiment(study, out, seeds=seeds, jobs=jobs, placement=where, as_json=json):
        raise typer.Exit(1)


@app.command()
def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(help="yunis2024, boix2023 or findings.", show_default="both papers"),
    ] = None,
    scale: ScaleOption = "small",
    seed: SeedOption = None,
    out: OutOption = RUNS,
    jobs: JobsOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    on: OnOption = "here",
) -> None:
    """Run all experiments of a paper, or of both papers, and write one HTML report.

    The report is a single file: OUT/PAPER/report-SCALE/index.html, or OUT/report-SCALE/index.html
    for both papers. Its path is printed last. **findings** are our own, beyond the papers.

    The exit code is 0 whatever the verdicts are, and 1 if a run, a claim or a figure failed.
    """
    from rankscope.lab import commands
    from rankscope.lab.catalogue import load_papers, load_study
    from rankscope.lab.running.placement import choose_placement

    done = commands.reproduce(
        (load_study(paper, scale),) if paper else load_papers(scale),
        out,
        commands.report_folder(paper, scale, out),
        command=typed_command(),
        seeds=tuple(dict.fromkeys(seed)) if seed else None,
        jobs=jobs,
        placement=choose_placement(device=device, data=data, on=on),
    )
    if not done:
        raise typer.Exit(1)


@app.command("list")
def list_experiments(
    out: Annotated[
        Path, typer.Option(callback=local, help="Folder in which to look for runs.")
    ] = RUNS,
    verbose: Annotated[bool, typer.Option("--verbose", help="One line per scale.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Show the experiments, what they cost, and how many of their runs are stored."""
    from dataclasses import asdict
    from json import dumps

    from rich.console import Console

    from rankscope.lab.catalogue import entries
    from rankscope.lab.reporting.terminal import experiment_table

    listed = entries(out, archive=RESULTS)
    if json:
        typer.echo(dumps([asdict(entry) for entry in listed], indent=1))
    else:
        Console().print(experiment_table(listed, verbose=verbose))


results = typer.Typer(help="List the archived runs of scale paper; keep or check them.")
app.add_typer(results, name="results")

ArchiveArgument = Annotated[
    Path, typer.Argument(callback=local, help="Folder of the archived runs.")
]


@results.callback(invoke_without_command=True)
@no_type_check  # the context's class is private to typer
def results_list(context: typer.Context) -> None:
    """List the archived runs and what they cost."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console

    from rankscope.lab.archive.documents import archive_table
    from rankscope.lab.catalogue import load_studies
    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.terminal import filled_table

    if not RESULTS.is_dir():
        raise ValueError(f"no folder {RESULTS} here; run this in a clone of the repository")
    columns, rows = archive_table(load_studies("paper"), RESULTS)
    title = f"Archived runs in {RESULTS}; times are summed over runs"
    table = filled_table(Table(columns, tuple(rows)), title=title)
    table.columns[0].no_wrap = True
    Console().print(table)


@results.command("keep")
def results_keep(
    runs: Annotated[
        Path,
        typer.Argument(
            callback=local, help="Folder of runs, another archive, or RESULTS to judge it again."
        ),
    ],
    results: ArchiveArgument = RESULTS,
) -> None:
    """Archive whole runs of scale paper as small files, judge all claims, write the tables.

    Archived runs stay, so the command can be repeated. It fills the tables of README.md and
    docs/papers beside RESULTS.
    """
    from rankscope.lab.archive.keep import keep

    if not keep(runs, results):
        raise typer.Exit(1)


@results.command("check")
def results_check(results: ArchiveArgument = RESULTS) -> None:
    """Judge the archived runs again and compare the numbers with those that are written."""
    from rankscope.lab.archive.check import problems

    lines = problems(results)
    for line in lines:
        typer.echo(line)
    if lines:
        raise typer.Exit(1)
    typer.echo(f"{results}: all numbers agree.")
