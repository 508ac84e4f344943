"""The command line. Each command imports what it needs, so help is instant."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal, no_type_check

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RUNS = Path("runs")
RESULTS = Path("results")
LAB = ("huggingface_hub", "PIL", "pyarrow", "sklearn", "soundfile", "tokenizers")
EXTRAS = {"ray": "ray", "transformers": "transformers", **dict.fromkeys(LAB, "lab")}


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rankscope {version('rankscope')}")
        raise typer.Exit
    return wanted


def _local(path: Path | None) -> Path | None:
    """Expand `~`, which a shell leaves alone in --out=~/runs; refuse a URL."""
    from rankscope.store.source import local_path

    return None if path is None else local_path(path)


@app.callback()
def rankscope(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Watch the rank of neural networks while they learn.

    **First look.** `rankscope demo` trains two small networks at two weight decays each, follows
    every singular value of every weight matrix, and lets a toy attention head learn one coordinate
    after another. It takes a few minutes on two cores and ends with an HTML report.

    **The papers.** `rankscope list` shows the experiments. `rankscope run NAME` runs one,
    `rankscope reproduce` runs whole papers, `rankscope report` writes the report again. Finished
    runs are never repeated, and the same command continues after an interruption.

    **Your own experiment.** `rankscope run my_experiment.py` runs a file of yours.

    **Your own training loop** needs three lines:

    ```
    with rankscope.Tracker(model, "runs/first") as tracker:
        ...
            tracker.observe(step, loss=loss)
    ```

    `rankscope.open("runs/first")` returns an xarray Dataset.
    """


# Options of several commands.
ScaleOption = Annotated[
    Literal["paper", "small", "smoke"],
    typer.Option(
        help="paper: the papers' networks and schedules. small: minutes on two cores, no "
        "download. smoke: seconds."
    ),
]
SeedOption = Annotated[
    list[int] | None,
    typer.Option(
        min=0,
        help="Run only this seed (repeatable). Verdicts use all stored seeds.",
    ),
]
OutOption = Annotated[
    Path, typer.Option(callback=_local, help="Folder for runs, verdicts and figures.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at the same time.", show_default="one per core, 5 on a GPU"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        callback=_local,
        help="Folder with the data sets in the Hugging Face hub's layout; for scale paper.",
        show_default="RANKSCOPE_DATA, or the hub",
    ),
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(help="Where networks are trained.", show_default="cuda if there is one"),
]
OnOption = Annotated[
    Literal["here", "ray"],
    typer.Option(help="This machine, or a Ray cluster (RAY_ADDRESS; without it a local one)."),
]


@app.command()
def demo(
    out: Annotated[
        Path,
        typer.Option(callback=_local, help="Folder for the runs; the report is in OUT/demo."),
    ] = RUNS,
    jobs: JobsOption = None,
) -> None:
    """Run a few experiments of both papers and show what they say, in minutes.

    A VGG learns digits and a Transformer Python source code, at two weight decays each. A diagonal
    attention head learns in stages. **rankscope reproduce** uses these runs again.
    """
    from rankscope.lab.papers.demo import demo as run_demo

    if not run_demo(out, command=_typed(), jobs=jobs):
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
        str | None, typer.Argument(help="yunis2024 or boix2023.", show_default="all papers")
    ] = None,
    scale: ScaleOption = "small",
    seed: SeedOption = None,
    out: OutOption = RUNS,
    jobs: JobsOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    on: OnOption = "here",
) -> None:
    """Run all experiments of a paper, or of all papers, and write one HTML report.

    The report is a single file: OUT/PAPER/report-SCALE/index.html, or OUT/report-SCALE/index.html
    for all papers. Its path is printed last.

    The exit code is 0 whatever the verdicts are, and 1 if a run, a claim or a figure failed.
    """
    from rankscope.lab import commands
    from rankscope.lab.catalogue import load_studies
    from rankscope.lab.running.placement import choose_placement

    done = commands.reproduce(
        load_studies(scale, paper),
        out,
        commands.report_folder(paper, scale, out),
        command=_typed(),
        seeds=tuple(dict.fromkeys(seed)) if seed else None,
        jobs=jobs,
        placement=choose_placement(device=device, data=data, on=on),
    )
    if not done:
        raise typer.Exit(1)


@app.command()
def show(
    path: Annotated[
        Path, typer.Argument(callback=_local, help="A run that a tracker wrote, or a checkpoint.")
    ],
    reference: Annotated[
        Path | None,
        typer.Option(callback=_local, help="Checkpoint that the change is measured from."),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="Column to sort by, largest first, such as change.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show norm, ranks and change of every matrix of a run or a checkpoint."""
    from rankscope.tables import summary

    table = summary(path, reference=reference, sort=sort)
    if json:
        typer.echo(table.reset_index().to_json(orient="records", indent=1))
        return
    from rich.console import Console

    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.run_page import run_facts, table_rows
    from rankscope.lab.reporting.terminal import filled_table
    from rankscope.store import is_run
    from rankscope.store import open as open_run

    console = Console()
    if console.width < 100:
        table = table.drop(columns="kind")
    columns = ("matrix", *(column.replace("_", " ") for column in table.columns))
    lines = filled_table(Table(columns, tuple(table_rows(table))), title=str(path))
    lines.columns[0].no_wrap, lines.columns[0].overflow = True, "fold"
    console.print(lines)
    for fact in run_facts(open_run(path)) if is_run(path) else ():
        console.print(fact, highlight=False)


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
            callback=_local,
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
    if is_run(folder):
        report_on_runs([folder, *others], out, command=_typed())
        return
    if len(others) > 1:
        raise ValueError(f"{folder} is not a run; give runs, or one folder and perhaps a paper")
    paper = str(others[0]) if others else None
    if not report_again(paper, scale, folder, command=_typed()):
        raise typer.Exit(1)


results = typer.Typer(help="List the archived runs of scale paper; keep or check them.")
app.add_typer(results, name="results")

ArchiveArgument = Annotated[
    Path, typer.Argument(callback=_local, help="Folder of the archived runs.")
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
            callback=_local, help="Folder of runs, another archive, or RESULTS to judge it again."
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


@app.command()
def check(
    runs: Annotated[
        Path,
        typer.Argument(callback=_local, help="A run, an archive of one, or a folder of runs."),
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


def _typed() -> str:
    """Return the command as it was typed; it makes the same again."""
    return shlex.join(["rankscope", *sys.argv[1:]])


@app.command("list")
def list_experiments(
    out: Annotated[
        Path, typer.Option(callback=_local, help="Folder in which to look for runs.")
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


def main() -> None:
    """Run a command. A user's mistake becomes one sentence on stderr and exit code 2.

    So does a missing package of an extra, and a file system that refuses.
    """
    try:
        app()
    except ValueError as mistake:
        typer.echo(f"rankscope: {mistake}", err=True)
        sys.exit(2)
    except OSError as trouble:
        reason = trouble.strerror or str(trouble) or type(trouble).__name__
        where = f"{trouble.filename}: " if trouble.filename else ""
        typer.echo(f"rankscope: {where}{reason}; what was finished is kept", err=True)
        sys.exit(2)
    except ModuleNotFoundError as missing:
        extra = EXTRAS.get((missing.name or "").split(".")[0])
        if extra is None:
            raise
        advice = f"install it with pip install 'rankscope[{extra}]'"
        typer.echo(f"rankscope: this needs the package {missing.name}; {advice}", err=True)
        sys.exit(2)
