"""The command line. Each command imports what it needs, so that help is instant."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def main() -> None:
    """Runs a command; a user's mistake becomes one sentence on stderr and exit code 2."""
    try:
        app()
    except ValueError as mistake:
        typer.echo(f"rankscope: {mistake}", err=True)
        sys.exit(2)
