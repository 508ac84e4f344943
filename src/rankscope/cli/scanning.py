"""The command that scans checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankscope.cli.options import OnOption, app, local
from rankscope.cli.tables import print_table, warn

if TYPE_CHECKING:
    from rankscope.scanning import Scan

# Columns that a narrow terminal does without, the least useful first.
LEAST = ("kind", "r50", "r90", "tail", "r99", "eff. rank at first", "norm", "shape")
SHORT = {
    "first_rank": "eff. rank at first",
    "effective_rank": "eff. rank",
    "tail_exponent": "tail",
}
NEED_VALUES = ("effective_rank", "stable_rank", "r50", "r90", "r99", "tail_exponent")


@app.command("scan")
def scan_command(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Checkpoints: a .safetensors, .pt, .bin or .gguf file, a folder of a model, an "
            "adapter or a distributed checkpoint, a model on the hub, a folder of checkpoints in "
            "step order."
        ),
    ],
    base: Annotated[
        str | None, typer.Option(help="Checkpoint that the changes are measured from.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            callback=local,
            help="Run to write, one snapshot per checkpoint; an interrupted one continues.",
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="Column to sort by, largest first, such as stable_rank.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(help="Only matrices that match (repeatable), such as `*.mlp.*`."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No matrices that match (repeatable).")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Files of a folder that belong to the series, such as `checkpoint-*`."),
    ] = None,
    leading: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of singular values; 0 for norms only.", show_default="all"
        ),
    ] = None,
    revision: Annotated[
        list[str] | None,
        typer.Option(help="Revision of a model on the hub (repeatable, then a series)."),
    ] = None,
    like: Annotated[
        Literal["weightwatcher"] | None,
        typer.Option(help="Print the table under the column names of another tool."),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Where matrices are decomposed.", show_default="cpu"),
    ] = None,
    on: OnOption = "here",
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
) -> None:
    """Show every matrix of checkpoints: norm, ranks, tail, and what stands out.

    A folder of checkpoints is a series: the table shows the last one, and the first one's ranks.
    With a base the table describes the changes since it.

    The exit code is 2 if anything could not be read; the rest is printed and stored all the same.
    """
    from rankscope.scanning.command import run_scan
    from rankscope.store import is_run

    _refuse_contradictions(paths, sort, revision, like, json=json, csv=csv)
    sort = None if sort is None else _column(sort)
    continues = out is not None and is_run(out)
    result = run_scan(
        [f"{path}@{name}" for path in paths for name in revision] if revision else paths,
        base=base,
        out=out,
        include=include,
        exclude=exclude,
        pattern=pattern,
        leading=leading,
        device=device or "cpu",
        on=on,
    )
    if out is not None:
        count = len(result.checkpoints)
        outcome = "continued" if continues else "written"
        typer.echo(f"{out}: run {outcome}, {count} snapshot{'s' * (count != 1)}", err=True)
    if sort in NEED_VALUES and leading is not None and sort not in result.table():
        raise ValueError(f"--sort {sort}: it needs all values; leave out --leading")
    if sort is not None:  # a wrong column is refused before anything is printed
        (result.table if json or csv else result.last_table)(sort=sort)
    if json:
        typer.echo(_json(result, sort))
    elif csv or like is not None:
        table = _like_weightwatcher(result) if like else result.table(sort=sort).reset_index()
        typer.echo(table.to_csv(index=False), nl=False)
    else:
        left_out = [
            name for name, given in (("--include", include), ("--exclude", exclude)) if given
        ]
        _print(result, sort, left_out_by=" and ".join(left_out))
    warn(result.notes, rest=", which --json lists")
    warn(result.problems, rest=", which --json lists")
    if result.problems:
        raise typer.Exit(2)


def _refuse_contradictions(
    paths: list[str],
    sort: str | None,
    revision: list[str] | None,
    like: str | None,
    *,
    json: bool,
    csv: bool,
) -> None:
    """Raise ValueError for options that mean nothing, before hours of work."""
    from rankscope.scanning.results import COLUMNS

    if json and (csv or like):
        raise ValueError("--json has no meaning beside --csv or --like; give one of them")
    if like and sort:
        raise ValueError("--sort has no meaning beside --like, which keeps the checkpoint's order")
    if sort is not None and _column(sort) not in COLUMNS:
        raise ValueError(f"--sort is a column, one of {', '.join(COLUMNS)}; got {sort!r}")
    local = next((path for path in paths if Path(path).expanduser().exists()), None)
    if revision and local is not None:
        raise ValueError(f"--revision chooses among those of a model on the hub; {local!r} is here")


def _header(column: str) -> str:
    """Return the words that stand above a column."""
    return SHORT.get(column, column.replace("_", " "))


def _column(name: str) -> str:
    """Return the column that has `name` as its name or its header."""
    from rankscope.scanning.results import COLUMNS

    return {_header(column): column for column in COLUMNS}.get(name, name)


def _like_weightwatcher(result: "Scan") -> Any:
    from rankscope.scanning.weightwatcher import weightwatcher_table

    return weightwatcher_table(result.checkpoints)


def _json(result: "Scan", sort: str | None) -> str:
    import json
    from dataclasses import asdict

    rows = result.table(sort=sort).reset_index().to_json(orient="records")
    return json.dumps(
        {
            "base": result.base,
            "matrices": json.loads(rows),
            "checkpoints": [
                {"step": scan.step, "source": scan.source, "coverage": scan.coverage.summary}
                for scan in result.checkpoints
            ],
            "coverage": [asdict(line) for line in result.coverage],
            "problems": list(result.problems),
            "notes": list(result.notes),
        },
        indent=1,
    )


def _print(result: "Scan", sort: str | None, *, left_out_by: str) -> None:
    from rich.console import Console

    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.run_page import table_rows

    console = Console()
    table = result.last_table(sort=sort)
    if not table["stands_out"].any():
        table = table.drop(columns="stands_out")
    table["shape"] = table["shape"].str.replace(" ", "")
    columns = ("matrix", *map(_header, table.columns))
    print_table(Table(columns, tuple(table_rows(table))), title=result.title, least=LEAST)
    summary = result.coverage.summary.replace(" excluded", f" left out by {left_out_by}")
    console.print(summary, highlight=False, markup=False)
    aside = [line for line in result.coverage if line.status in ("not read", "flattened")]
    for line in aside[:10]:
        console.print(f"  {line.tensor}: {line.how}", highlight=False, markup=False)
    if len(aside) > 10:
        console.print(f"  and {len(aside) - 10} more", highlight=False, markup=False)
