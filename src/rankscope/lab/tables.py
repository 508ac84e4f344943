"""Verdicts and lists of experiments as tables for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from rankscope.lab import verdict
from rankscope.lab.catalogue import Entry
from rankscope.lab.verdict import LEAST_SEEDS, Holds, NetworkVerdict, Verdict

COLOURS: dict[Holds, str] = {"yes": "green", "no": "red", "undecided": "yellow"}
Standing = Holds | Literal["waiting"]
LOST = "without "  # begins a sentence of evidence on runs that are not there


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """One row per claim; under its sentence what the value is, the bound, and what networks say.

    80 columns have room for it.
    """
    table = plain_table("claim", "says", "holds", "value")
    for each in verdicts:
        lines = (escape(each.sentence), _meaning(each), _networks(each) or _nothing(each))
        says = "\n".join(filter(None, lines))
        table.add_row(each.claim, says, _coloured(each.holds), number(each.value))
    return table


def _meaning(judged: Verdict) -> str:
    seeds = "" if _networks(judged) else _range(judged.interval)
    parts = (judged.quantity, f"bound {judged.bound}" if judged.bound else "", seeds)
    said = escape("; ".join(filter(None, parts)))
    return f"[dim]{said}[/dim]" if said else ""


def _networks(judged: Verdict) -> str:
    """What each says, where there are several or the one does not say the same as the verdict."""
    of = judged.networks
    shown = len(of) > 1 or {network_outcome(each) for each in of} - {judged.holds}
    return "; ".join(map(_network, of)) if shown else ""


def _nothing(judged: Verdict) -> str:
    """Why there is no value, where no network was judged."""
    said = "" if judged.networks else "; ".join(judged.evidence[:1])
    return f"[yellow]{escape(said)}[/yellow]" if said else ""


def _network(network: NetworkVerdict) -> str:
    said = _coloured(network.holds, network_outcome(network))
    seeds = _range(network.interval)
    return f"{escape(network.network)} {said}" + (f" ({seeds})" if seeds else "")


def network_outcome(network: NetworkVerdict) -> str:
    """ "yes", "no"; of an undecided network its seeds: "met in 2 of 2", "cannot tell in 1"."""
    mets = [seed.met for seed in network.seeds]
    if network.holds != "undecided" or not mets:
        return network.holds
    unknown = mets.count(None)
    told = f"met in {mets.count(True)} of {len(mets) - unknown}" if unknown < len(mets) else ""
    return ", ".join(filter(None, (told, f"cannot tell in {unknown}" if unknown else "")))


def standing(judged: Verdict | None) -> Standing:
    """The verdict; "waiting" for runs where these could decide it."""
    return "waiting" if judged is None or waits(judged) else judged.holds


def waits(judged: Verdict) -> bool:
    """Whether it is undecided for want of runs."""
    few = any(len(each.seeds) < LEAST_SEEDS for each in judged.networks)
    lost = any(line.startswith(LOST) for line in judged.evidence)
    return judged.holds == "undecided" and (few or lost or not judged.networks)


def _range(interval: tuple[float, float] | None) -> str:
    """ "0.1 to 0.3", or "" where seeds do not differ in what is shown or there is nothing."""
    return "" if interval is None or len(set(map(number, interval))) == 1 else span(interval)


def evidence(judged: Verdict) -> Sequence[str | Table]:
    """What stands behind a verdict: its sentences, then its tables."""
    lines = [f"{judged.claim}: {escape(line)}" for line in judged.evidence]
    titled = ((": ".join(filter(None, (judged.claim, of.title))), of) for of in judged.tables)
    return [*lines, *(filled_table(table, title=title) for title, table in titled)]


def experiment_table(entries: Iterable[Entry]) -> Table:
    """One row per scale, under a line that says what the experiment is; each paper's total last."""
    table = plain_table("experiment", "scale", "expected", "runs", "there")
    for paper, of_paper in groupby(entries, lambda entry: entry.experiment.partition("/")[0]):
        found = list(of_paper)
        for experiment, scales in groupby(found, lambda entry: entry.experiment):
            rows = list(scales)
            table.add_row(f"[bold]{experiment}[/bold]\n{escape(rows[0].summary)}")
            for entry in rows:
                runs = f"{entry.total // entry.seeds} x {entry.seeds} seeds"
                cost = _cost(entry.expected_seconds, entry.expected_on)
                table.add_row("", entry.scale, cost, runs, _there([entry]))
        table.add_row(f"[bold]{paper}[/bold]\nAll of it: rankscope reproduce {paper}")
        for scale in dict.fromkeys(entry.scale for entry in found):
            same = [entry for entry in found if entry.scale == scale]
            seconds = [entry.expected_seconds for entry in same]
            total = None if None in seconds else sum(filter(None, seconds))
            machines = " and ".join(dict.fromkeys(entry.expected_on for entry in same))
            runs = str(sum(entry.total for entry in same))
            table.add_row("", scale, _cost(total, machines), runs, _there(same))
    return table


def _cost(seconds: float | int | None, machine: str) -> str:
    return "?" if seconds is None else f"{duration(seconds)}, {machine}"


def _there(entries: Sequence[Entry]) -> str:
    """ "4 of 12", and on a line of its own how many are kept in a folder of results."""
    whole, total, kept = (sum(getattr(e, of) for e in entries) for of in ("whole", "total", "kept"))
    shown = "all" if whole == total else f"{whole} of {total}"
    return f"{shown}\n{kept} kept" if kept else shown


def duration(seconds: float | int | None) -> str:
    """About how long: "40 s", "6 min", "3 h"; "?" if nobody knows."""
    if seconds is None:
        return "?"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain_table(*columns: str) -> Table:
    """As all tables here look; what is short is not broken."""
    table = Table(*columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.no_wrap = column.header in {"claim", "holds", "value", "scale", "there"}
    return table


def filled_table(content: verdict.Table, *, title: str) -> Table:
    """A table of evidence, or of the same kind."""
    table = plain_table(*map(escape, content.columns))
    table.title, table.title_justify = escape(title), "left"
    for row in content.rows:
        table.add_row(*(escape(cell(each)) for each in row))
    return table


def cell(content: verdict.Cell) -> str:
    """What stands in a table of evidence, as text."""
    if isinstance(content, bool):
        return "yes" if content else "no"
    return content if isinstance(content, str) else number(content, digits=4)


def _coloured(holds: Holds, said: str = "") -> str:
    return f"[{COLOURS[holds]}]{said or holds}[/{COLOURS[holds]}]"


def number(value: float | int | None, *, digits: int = 3) -> str:
    """To three digits; "-" for none."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def range_over(verdicts: Iterable[Verdict]) -> str:
    """What the interval of a verdict spans, in words."""
    several = any(len(each.networks) > 1 for each in verdicts)
    return "range over seeds and networks" if several else "range over seeds"


def span(interval: tuple[float, float] | None, show: Callable[[float], str] = number) -> str:
    """An interval: "0.1 to 0.3"; one number where both ends look the same."""
    return "-" if interval is None else " to ".join(dict.fromkeys(map(show, interval)))


def first_rule(claim: str) -> str:
    """ "Y3" of "Y3-median", and of "Y3"."""
    return claim.partition("-")[0]


def second_rule(claim: str) -> bool:
    """Whether it is judged by a rule that was made after the first runs."""
    return first_rule(claim) != claim
