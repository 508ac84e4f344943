"""The command line. Each command imports what it needs, so help is instant."""

import sys

import typer

from rankscope.cli import laboratory as laboratory
from rankscope.cli import lora as lora
from rankscope.cli import runs as runs
from rankscope.cli import scanning as scanning
from rankscope.cli import viewing as viewing
from rankscope.cli.options import app as app
from rankscope.extras import EXTRAS, needed_by


def main() -> None:
    """Run a command. A user's mistake becomes one sentence on stderr and exit code 2.

    So does a missing package of an extra, and a file system that refuses.
    """
    try:
        with needed_by("this"):
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
        if (missing.name or "").split(".")[0] not in EXTRAS:
            raise
        typer.echo(f"rankscope: {missing}", err=True)
        sys.exit(2)
