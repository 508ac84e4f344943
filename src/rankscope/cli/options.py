"""The command line's application, its help, and the options that several commands take."""

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


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rankscope {version('rankscope')}")
        raise typer.Exit
    return wanted


def local(path: Path | None) -> Path | None:
    """Expand `~`, which a shell leaves alone in --out=~/runs; refuse a URL."""
    from rankscope.store.source import local_path

    return None if path is None else local_path(path)


def typed_command() -> str:
    """Return the command as it was typed; it makes the same again."""
    return shlex.join(["rankscope", *sys.argv[1:]])


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
    Path, typer.Option(callback=local, help="Folder for runs, verdicts and figures.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at the same time.", show_default="one per core, 5 on a GPU"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        callback=local,
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
