"""Tables of matrices as the commands print them, and sentences beside: no number is ever cut."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Lines

    from rankscope.lab.judging.verdict import Table

NARROW = 16  # columns of a terminal that names and sentences need at least
SPARE = 2  # columns that are left out rather than that names break
UNLIMITED = 100_000
NUMBER = re.compile(r"(>=?)?-?\d+(\.\d+)?(e[-+]\d+)?|-|inf")
UNKNOWN = "-"  # in place of NaN
MOST_SENTENCES = 20  # of one kind


def warn(sentences: Sequence[str], *, rest: str = "") -> None:
    """Print sentences on stderr; beyond 20 only their number, and `rest`, which says where."""
    for sentence in sentences[:MOST_SENTENCES]:
        typer.echo(f"rankscope: {sentence}", err=True)
    more = len(sentences) - MOST_SENTENCES
    if more > 0:
        typer.echo(f"rankscope: and {more} more{rest}", err=True)


def print_table(content: "Table", *, title: str, least: Sequence[str] = ()) -> None:
    """Print a table: in full where no terminal limits it, else names and sentences fold.

    least: columns that are left out in this order if a terminal is too narrow for all numbers.
    """
    from rich.console import Console
    from rich.markup import escape

    from rankscope.lab.reporting.terminal import filled_table

    console = Console()
    console.print(title, style="italic", highlight=False, markup=False, soft_wrap=True)
    content = with_points_aligned(content)
    lines = filled_table(content, title="")
    width = _width(console, lines)
    if not console.is_terminal or width <= console.width:
        Console(width=max(width, console.width)).print(lines)
        return
    whole, broken = (_fitted(console, content, least, room) for room in (UNLIMITED, NARROW))
    wider = len(broken[0].columns) - len(whole[0].columns)
    lines, width = whole if whole[1] <= console.width and wider <= SPARE else broken
    Console(width=max(width, console.width)).print(lines)
    shown = {column.header for column in lines.columns}
    if missing := [name for name in content.columns if escape(name) not in shown]:
        console.print(
            f"no room for: {', '.join(missing)}", style="dim", highlight=False, soft_wrap=True
        )


def _fitted(
    console: "Console", content: "Table", least: Sequence[str], room: int
) -> tuple["Lines", int]:
    """Return a table without the columns of `least` that do not fit, and its width.

    room: characters of a line of a name.
    """
    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.terminal import filled_table

    columns = list(content.columns)
    unneeded = [name for name in least if name in columns]
    while True:
        places = [content.columns.index(name) for name in columns]
        rows = tuple(
            (at_dots(str(row[0]), room), *(row[place] for place in places[1:]))
            for row in content.rows
        )
        lines = filled_table(Table(tuple(columns), rows), title="")
        width = _fold(console, lines, room)
        if width <= console.width or not unneeded:
            return lines, width
        columns.remove(unneeded.pop(0))


def with_points_aligned(content: "Table") -> "Table":
    """Return the table as text whose numbers have their decimal points below each other."""
    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.numbers import cell_text

    columns = [[cell_text(cell) for cell in column] for column in zip(*content.rows, strict=True)]
    aligned = [_aligned([UNKNOWN if text == "nan" else text for text in c]) for c in columns]
    return Table(content.columns, tuple(zip(*aligned, strict=True)))


def _aligned(texts: list[str]) -> list[str]:
    """Return numbers with as many characters before the point, and as many after it."""
    if not all(NUMBER.fullmatch(text) for text in texts):
        return texts
    wholes = [text.partition(".")[0] for text in texts]
    before = max(map(len, wholes))
    shifted = [" " * (before - len(w)) + t for w, t in zip(wholes, texts, strict=True)]
    width = max(map(len, shifted))
    return [text.ljust(width) for text in shifted]


def at_dots(name: str, room: int = NARROW) -> str:
    """Return a name in lines that end at its dots and fit into `room` columns if they can."""
    lines = [""]
    for part in re.findall(r"[^.]*\.?", name):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _width(console: "Console", lines: "Lines") -> int:
    return console.measure(lines, options=console.options.update(width=UNLIMITED)).maximum


def _fold(console: "Console", lines: "Lines", room: int) -> int:
    """Give each column of numbers the width it needs; return the least width of the whole."""
    folding = []
    for column in lines.columns:
        column.overflow = "fold"
        cells = [line for cell in column.cells for line in str(cell).split("\n")]
        column.width = max(map(len, (*cells, *str(column.header).split())), default=1)
        if column is lines.columns[0]:
            column.width = min(column.width, room)
            folding += [column] if room == NARROW else []
        elif any(" " in cell.strip() for cell in cells):
            column.width = min(column.width, NARROW)
            folding.append(column)
    width = _width(console, lines)
    for column in folding:
        column.width = None
    return width
