"""Numbers, times and cells of tables as people read them."""

from collections.abc import Callable

from rankscope.lab.judging.verdict import Cell


def duration(seconds: float | int | None) -> str:
    """Return about how long: "40 s", "6 min", "3 h"; "?" for None."""
    if seconds is None:
        return "?"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def cell_text(cell: Cell) -> str:
    """Return a cell of a table of evidence as text."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else number(cell, digits=4)


def number(value: float | int | None, *, digits: int = 3) -> str:
    """Return a number to `digits` digits; "-" for None."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def span(interval: tuple[float, float] | None, show: Callable[[float], str] = number) -> str:
    """Return an interval: "0.1 to 0.3"; one number where both ends look the same."""
    if interval is None:
        return "-"
    low, high = map(show, interval)
    return low if low == high else f"{low} to {high}"
