"""The command that shows runs in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.options import RESULTS, RUNS, app

LOOPBACK = "127.0.0.1"


@app.command()
def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Runs, or folders that are searched for runs.",
            show_default="runs and results, where they exist",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port.", show_default="8765, or the next free one"),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. Any but loopback lets other machines ask."),
    ] = LOOPBACK,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Look at runs in a browser, also while they are being written.

    The page is served from this machine alone and needs no network. Nothing is written. The address
    holds a token; without it nobody on this machine sees the runs.
    """
    folders = [path.expanduser() for path in runs or (RUNS, RESULTS)]
    if missing := [path for path in folders if runs and not path.exists()]:
        raise ValueError(f"{missing[0]} does not exist; give a run, or a folder of runs")
    folders = [path for path in folders if path.exists()]
    if not folders:
        raise ValueError("there is no folder runs or results here; give a run, or a folder of runs")
    from rankscope.view.server import serve

    if host not in (LOOPBACK, "localhost", "::1"):
        typer.echo(
            f"rankscope: other machines can reach {host}; whoever has the address below sees these "
            "runs, and it is not encrypted",
            err=True,
        )
    serve(folders, port=port, host=LOOPBACK if host == "localhost" else host, browser=not no_open)
