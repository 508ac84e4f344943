"""Verdicts and lists of experiments as tables for a terminal."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from rankscope.lab import verdict
from rankscope.lab.catalogue import Entry
from rankscope.lab.verdict import Holds, NetworkVerdict, Verdict

COLOURS: dict[Holds, str] = {"yes": "green", "no": "red", "undecided": "yellow"}


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """One row per claim; where several networks were asked, one more for each of them."""
    table = _table("claim", "says", "holds", "value", "bound", "range over seeds")
    for each in verdicts:
        table.add_row(
            each.claim,
            escape(each.sentence)
            + (f"\n[dim]{escape(each.quantity)}[/dim]" if each.quantity else ""),
            _coloured(each.holds),
            _number(each.value),
            escape(each.bound),
            _range(each.interval),
        )
        for network in each.networks if len(each.networks) > 1 else ():
            table.add_row(*_network_row(network))
    return table


def evidence(judged: Verdict) -> Sequence[str | Table]:
    """What stands behind a verdict: its sentences, then its tables."""
    lines = [f"{judged.claim}: {escape(line)}" for line in judged.evidence]
    return [*lines, *(_evidence_table(judged.claim, table) for table in judged.tables)]


def experiment_table(entries: Iterable[Entry]) -> Table:
    """One row per scale, under a line that says what the experiment is."""
    table = _table("experiment", "scale", "expected", "runs", "there")
    last = None
    for entry in entries:
        if entry.experiment != last:
            table.add_row(f"[bold]{entry.experiment}[/bold]\n{escape(entry.summary)}")
        last = entry.experiment
        runs = f"{entry.total // entry.seeds} x {entry.seeds} seeds"
        there = "all" if entry.whole == entry.total else f"{entry.whole} of {entry.total}"
        table.add_row("", entry.scale, duration(entry.expected_seconds), runs, there)
    return table


def duration(seconds: float | int | None) -> str:
    """About how long: "40 s", "6 min", "3 h"; "?" if nobody knows."""
    if seconds is None:
        return "?"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _table(*columns: str) -> Table:
    table = Table(*columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.no_wrap = column.header in {"claim", "holds", "value", "scale", "there"}
    return table


def _network_row(network: NetworkVerdict) -> Sequence[str]:
    value, interval = _number(network.value), _range(network.interval)
    return ("", f"  {escape(network.network)}", _coloured(network.holds), value, "", interval)


def _evidence_table(claim: str, evidence: verdict.Table) -> Table:
    table = _table(*map(escape, evidence.columns))
    table.title = escape(f"{claim}: {evidence.title}" if evidence.title else claim)
    table.title_justify = "left"
    for row in evidence.rows:
        table.add_row(*(escape(_cell(cell)) for cell in row))
    return table


def _cell(cell: verdict.Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else _number(cell, digits=4)


def _coloured(holds: Holds) -> str:
    return f"[{COLOURS[holds]}]{holds}[/{COLOURS[holds]}]"


def _number(value: float | int | None, *, digits: int = 3) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def _range(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else f"{_number(interval[0])} to {_number(interval[1])}"
