"""Tables of matrices as the commands print them: no number is ever cut."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Lines

    from rankscope.lab.judging.verdict import Table

NARROW = 16  # columns of a terminal that names and sentences need at least
UNLIMITED = 100_000


def print_table(content: "Table", *, title: str, least: Sequence[str] = ()) -> None:
    """Print a table: in full where no terminal limits it, else names and sentences fold.

    least: columns that are left out in this order if a terminal is too narrow for all numbers.
    """
    from rich.console import Console

    from rankscope.lab.judging.verdict import Table
    from rankscope.lab.reporting.terminal import filled_table

    console = Console()
    lines = filled_table(content, title=title)
    width = _width(console, lines)
    if not console.is_terminal or width <= console.width:
        Console(width=max(width, console.width)).print(lines)
        return
    columns = list(content.columns)
    unneeded = [name for name in least if name in columns]
    while True:
        places = [content.columns.index(name) for name in columns]
        rows = tuple(
            (at_dots(str(row[0])), *(row[place] for place in places[1:])) for row in content.rows
        )
        lines = filled_table(Table(tuple(columns), rows), title=title)
        width = _fold(console, lines)
        if width <= console.width or not unneeded:
            break
        columns.remove(unneeded.pop(0))
    Console(width=max(width, console.width)).print(lines)


def at_dots(name: str) -> str:
    """Return a name in lines that end at its dots and fit into `NARROW` columns if they can."""
    lines = [""]
    for part in re.findall(r"[^.]*\.?", name):
        if lines[-1] and len(lines[-1]) + len(part) > NARROW:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _width(console: "Console", lines: "Lines") -> int:
    return console.measure(lines, options=console.options.update(width=UNLIMITED)).maximum


def _fold(console: "Console", lines: "Lines") -> int:
    """Give each column of numbers the width it needs; return the least width of the whole."""
    folding = []
    for column in lines.columns:
        column.overflow = "fold"
        cells = [line for cell in column.cells for line in str(cell).split("\n")]
        column.width = max(map(len, (*cells, *str(column.header).split())), default=1)
        if column is lines.columns[0] or any(" " in cell for cell in cells):
            column.width = min(column.width, NARROW)
            folding.append(column)
    width = _width(console, lines)
    for column in folding:
        column.width = None
    return width
