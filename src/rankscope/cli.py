"""The command line. Each command imports what it needs, so that help is instant."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RUNS = Path("runs")
RESULTS = Path("results")
DEFAULTS = {"scale": "small", "out": RUNS, "on": "here"}  # of options; of others none


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rankscope {version('rankscope')}")
        raise typer.Exit
    return wanted


@app.callback()
def rankscope(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Watch the rank of neural networks while they learn.

    **Look first.** `rankscope demo` trains a small VGG on digits and a small Transformer on Python
    source code, each at two weight decays, follows every singular value of every weight matrix, and
    lets a toy attention head learn one coordinate after another: a few minutes on two cores. It
    ends with a table of the papers' claims and an HTML report.

    **Then all of it.** `rankscope list` shows the papers' experiments, what they cost, and what is
    there. `rankscope reproduce` runs whole papers and writes the report; `rankscope run NAME` runs
    one experiment; `rankscope report` writes the report again. What is there already is never run
    again, and the same command goes on where it was interrupted.

    **In your own training loop**, three lines do the same:

    ```
    with rankscope.Tracker(model, "runs/first") as tracker:
        ...
            tracker.observe(step, loss=loss)
    ```

    and `rankscope.open("runs/first")` gives an xarray Dataset.
    """


# What several commands share.
ScaleOption = Annotated[
    Literal["paper", "small", "smoke"],
    typer.Option(
        help="The paper's networks and numbers of steps, minutes on two cores, or seconds. What "
        "differs from the paper stands on each experiment's page."
    ),
]
SeedOption = Annotated[
    list[int] | None,
    typer.Option(
        min=0,
        help="Run only this seed (repeatable); verdicts are made of all seeds that are there.",
    ),
]
OutOption = Annotated[Path, typer.Option(help="Folder for runs, verdicts and figures.")]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at the same time.", show_default="cores; on a GPU 5"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the data sets, laid out as on the Hugging Face hub; scale paper needs "
        "them.",
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
        Path, typer.Option(help="Folder for the runs; the report is in OUT/demo.")
    ] = RUNS,
    jobs: JobsOption = None,
) -> None:
    """A few runs of both papers, in minutes: a table of claims and an HTML report.

    A VGG learns digits and a Transformer Python source code, at two weight decays each; a diagonal
    attention head learns in stages. With one seed every claim stays undecided, but the report shows
    the values and draws the figures. **rankscope reproduce** keeps these runs and adds the others.
    """
    from rankscope.lab.demo import demo as show

    if not show(out, command=_command("demo", out=out, jobs=jobs), jobs=jobs):
        raise typer.Exit(1)


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Its name, as **rankscope list** shows it.")],
    scale: ScaleOption = "small",
    seed: SeedOption = None,
    out: OutOption = RUNS,
    jobs: JobsOption = None,
    data: DataOption = None,
    device: DeviceOption = None,
    on: OnOption = "here",
    json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Run an experiment of the papers, judge its claims, draw its figures.

    Runs that are there whole are kept; one that was interrupted goes on or begins anew; one that
    was declared otherwise before is run again, its earlier result put aside. Verdicts come as a
    table and as verdicts.json, figures as PNG and SVG, all beside the runs in OUT/EXPERIMENT/SCALE.

    The exit code is 0 whatever the verdicts are, and 1 if a run,
    a claim or a figure failed.
    """
    from rankscope.lab.catalogue import load
    from rankscope.lab.placement import choose_placement
    from rankscope.lab.procedure import conduct

    declared = load(experiment, scale)
    seeds = tuple(dict.fromkeys(seed)) if seed else None
    where = choose_placement(device=device, data=data, on=on)
    if not conduct(declared, out, seeds=seeds, jobs=jobs, placement=where, as_json=json):
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
    """Run all experiments of a paper, or of all, and write one HTML report.

    Claims are judged on all networks together. The report is a single file that needs no
    network: OUT/PAPER/report-SCALE/index.html, or OUT/report-SCALE/index.html of all papers;
    verdicts.json and the figures are beside it. Its path is printed last.

    The exit code is 0 whatever the verdicts are, and 1 if a run,
    a claim or a figure failed.
    """
    from rankscope.lab import reproduction
    from rankscope.lab.placement import choose_placement

    done = reproduction.reproduce(
        reproduction.chosen(paper, scale),
        out,
        reproduction.report_folder(paper, scale, out),
        command=_command(
            "reproduce",
            paper,
            scale=scale,
            seed=seed,
            out=out,
            jobs=jobs,
            data=data,
            device=device,
            on=on,
        ),
        seeds=tuple(dict.fromkeys(seed)) if seed else None,
        jobs=jobs,
        placement=choose_placement(device=device, data=data, on=on),
    )
    if not done:
        raise typer.Exit(1)


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="Folder in which the runs are.")] = RUNS,
    paper: Annotated[
        str | None, typer.Argument(help="Only this one.", show_default="all papers")
    ] = None,
    scale: Annotated[
        Literal["paper", "small", "smoke"] | None,
        typer.Option(help="That of the runs.", show_default="small; of kept results paper"),
    ] = None,
) -> None:
    """Write the report again from the runs that are there; nothing is run.

    It is where **rankscope reproduce** writes it, and its path is printed last. Networks and seeds
    that are not there are left out and named. **rankscope report results** makes it of the results
    that are kept, which are of scale paper.
    """
    from rankscope.lab.reproduction import report_again

    command = _command("reproduce", paper, scale=scale, out=out)
    if not report_again(paper, scale, out, command=command):
        raise typer.Exit(1)


results = typer.Typer(
    no_args_is_help=True,
    help="The runs of the papers' own size that are kept: what is due, keeping it, checking it.",
)
app.add_typer(results, name="results")

ResultsArgument = Annotated[Path, typer.Argument(help="Folder in which results are kept.")]


@results.command("due")
def results_due(results: ResultsArgument = RESULTS) -> None:
    """Show which runs are due and done, what they cost, and the commands for what is left."""
    from rich.console import Console

    from rankscope.lab.results.cost import cost_table, costs, what_is_next
    from rankscope.lab.results.ledger import read_ledger

    if not results.is_dir():
        typer.echo(f"{results} is not there: nothing is kept yet.", err=True)
    found = costs(read_ledger(results))
    Console().print(cost_table(found))
    for line in what_is_next(found):
        typer.echo(line)


@results.command("keep")
def results_keep(
    runs: Annotated[
        Path,
        typer.Argument(
            help="Folder of runs, or of results kept on another machine; RESULTS to judge anew."
        ),
    ],
    results: ResultsArgument = RESULTS,
    new_rules: Annotated[
        str | None,
        typer.Option(help="Why claims are judged otherwise than before, of the same files."),
    ] = None,
) -> None:
    """Keep whole runs of scale paper as small files; judge, draw, and note it in the ledger.

    What is kept stays, so this can be repeated. Tables in README.md and docs/results.md beside
    RESULTS are written anew.
    """
    from rankscope.lab.results.keeping import keep

    if not keep(runs, results, new_rules=new_rules):
        raise typer.Exit(1)


@results.command("check")
def results_check(results: ResultsArgument = RESULTS) -> None:
    """Judge again what is kept, and compare: verdicts, tables, rules, declarations.

    Figures are compared with the hashes that were noted when they were drawn, not drawn again.
    """
    from rankscope.lab.results.checking import problems

    found = problems(results)
    for line in found:
        typer.echo(line)
    if found:
        raise typer.Exit(1)
    typer.echo(f"{results} is what it says to be.")


def _command(name: str, paper: str | None = None, **options: object) -> str:
    """What to type for the same again, without options that have their default."""
    words = ["rankscope", name, *([paper] if paper else [])]
    for option, value in options.items():
        if value and value != DEFAULTS.get(option):
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{option}", str(each)]
    return shlex.join(words)


@app.command("list")
def list_experiments(
    out: Annotated[Path, typer.Option(help="Folder in which to look for runs.")] = RUNS,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Show the experiments, what each scale costs, and how much of it is there.

    Runs of scale paper that are kept in results/ are counted beside those in OUT, or alone if
    that is OUT.
    """
    from json import dumps

    from rich.console import Console

    from rankscope.lab.catalogue import entries
    from rankscope.lab.tables import experiment_table

    found = entries(out, results=RESULTS)
    if json:
        typer.echo(dumps([entry._asdict() for entry in found], indent=1))
    else:
        Console().print(experiment_table(found))


def main() -> None:
    """Runs a command; a user's mistake becomes one sentence on stderr and exit code 2.

    So does an experiment's package that was not installed, since not everybody needs the lab.
    """
    try:
        app()
    except ValueError as mistake:
        typer.echo(f"rankscope: {mistake}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] == "rankscope":
            raise
        extra = "ray" if missing.name.split(".")[0] == "ray" else "lab"
        advice = f"install it with pip install 'rankscope[{extra}]'"
        typer.echo(f"rankscope: this needs the package {missing.name}; {advice}", err=True)
        sys.exit(2)
