"""The command line. Each command imports what it needs, so that help is instant."""

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

    Start with **rankscope demo**: a small Transformer learns Python source code for about a minute
    while every singular value of every weight matrix is followed; you get a table and figures.

    In your own training loop, three lines do the same:

    ```
    with rankscope.Tracker(model, "runs/first") as tracker:
        ...
            tracker.observe(step, loss=loss)
    ```

    and `rankscope.open("runs/first")` gives an xarray Dataset.

    The papers' own experiments are there too. **rankscope list** shows them; **rankscope run NAME**
    runs one at a small scale, says which of the paper's claims hold, and draws its figures. What is
    there already is not run again.
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run and its figures.")] = Path("demo"),
    steps: Annotated[
        int, typer.Option(min=1, help="Optimizer steps; 600 take about a minute.")
    ] = 600,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
) -> None:
    """Train a small Transformer on the Python standard library's own text, and look at its ranks.

    Prints what each matrix's rank was at the start and at the end and how strongly it is aligned
    with its neighbours; writes singular values, effective rank and alignment over time as PNG and
    SVG.
    """
    from rankscope.lab.demo import demo as run

    run(out, steps=steps, seed=seed)


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Its name, as **rankscope list** shows it.")],
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        typer.Option(help="The paper's own size, minutes on two cores, or seconds."),
    ] = "small",
    seed: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            help="Run only this seed (repeatable); verdicts are made of all seeds that are there.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, verdicts and figures.")] = RUNS,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time.", show_default="cores")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Run an experiment of the papers, judge its claims, draw its figures.

    Runs that are there whole are kept; one that was interrupted begins anew; one that was declared
    otherwise before is run again, its earlier result put aside. Verdicts come as a table and as
    verdicts.json, figures as PNG and SVG, all beside the runs in OUT/EXPERIMENT/SCALE.

    The exit code is 0 whatever the verdicts are, and 1 if a run,
    a claim or a figure failed.
    """
    from rankscope.lab.catalogue import load
    from rankscope.lab.procedure import conduct

    declared = load(experiment, scale)
    seeds = tuple(dict.fromkeys(seed)) if seed else None
    if not conduct(declared, out, seeds=seeds, jobs=jobs, as_json=json):
        raise typer.Exit(1)


@app.command("list")
def list_experiments(
    out: Annotated[Path, typer.Option(help="Folder in which to look for runs.")] = RUNS,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Show the experiments, what each scale costs on two cores, and how much of it is there."""
    from json import dumps

    from rich.console import Console

    from rankscope.lab.catalogue import entries
    from rankscope.lab.tables import experiment_table

    found = entries(out)
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
        advice = "install the laboratory's with pip install 'rankscope[lab]'"
        typer.echo(f"rankscope: this needs the package {missing.name}; {advice}", err=True)
        sys.exit(2)
