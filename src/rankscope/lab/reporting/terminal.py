"""Verdicts and lists of experiments as tables for a terminal."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from rankscope.lab.catalogue import Entry
from rankscope.lab.experiment import Study
from rankscope.lab.judging import verdict
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict, Word
from rankscope.lab.reporting.numbers import cell_text, duration, span
from rankscope.lab.running.run_key import variant_title

COLOURS: dict[Word, str] = {
    "holds": "green",
    "holds so far": "green",
    "fails": "red",
    "fails so far": "red",
    "mixed": "yellow",
    "mixed so far": "yellow",
    "no data": "dim",
}

OWN_CLAIMS = "Claims of our own, which the papers do not make"


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """Return one row per claim: its key, its sentence, and a line for each network."""
    table = plain_table("claim", "says", "networks")
    for judged in verdicts:
        quantity = f"[dim]{escape(judged.quantity)}; bound {escape(judged.bound)}[/dim]"
        lines = [escape(judged.fault)] if judged.fault else map(_network_line, judged.networks)
        table.add_row(
            judged.claim, f"{escape(judged.sentence)}\n{quantity}", "\n".join(lines) or "no data"
        )
    return table


def mark_tables(study: Study, verdicts: Iterable[Verdict]) -> dict[str, Table]:
    """Return the paper's claims, and those of our own if there are any, by heading.

    A study of our own has one table under its title.

    Each claim has one line: its key, its sentence, and a mark for each network. Variants of one
    network and part stand side by side. First rules that were changed, and claims of which these
    runs tell nothing, are left out.
    """
    shown = [judged for judged in verdicts if not judged.headline and _has_data(judged)]
    if study.ours:
        return {study.title: _mark_table(study, shown)}
    papers = _mark_table(study, [judged for judged in shown if not judged.ours])
    own = [judged for judged in shown if judged.ours]
    return {study.name: papers} | ({OWN_CLAIMS: _mark_table(study, own)} if own else {})


def _has_data(judged: Verdict) -> bool:
    return bool(judged.fault) or any(network.word != "no data" for network in judged.networks)


def _mark_table(study: Study, verdicts: Iterable[Verdict]) -> Table:
    table = plain_table("claim", "says", "")
    for judged in verdicts:
        marks = " · ".join(
            f"{escape(title)} {''.join(f'[{COLOURS[n.word]}]{n.mark}[/]' for n in variants)}"
            for title, variants in variants_by_title(study, judged.networks).items()
        )
        table.add_row(judged.claim, escape(judged.sentence), marks or escape(judged.fault))
    return table


def variants_by_title(
    study: Study, networks: Iterable[NetworkVerdict]
) -> dict[str, list[NetworkVerdict]]:
    """Put the variants of each network and part together under its title."""
    variants: dict[str, list[NetworkVerdict]] = {}
    for network in networks:
        title = study.network_title(network.experiment, network.network)
        variants.setdefault(", ".join(filter(None, (title, network.part))), []).append(network)
    return variants


def label(study: Study, network: NetworkVerdict) -> str:
    """Return title, variant and part of a network."""
    title = study.network_title(network.experiment, network.network)
    return ", ".join(filter(None, (title, variant_title(network.variant), network.part)))


def missing_sentences(study: Study, verdict: Verdict) -> list[str]:
    """Return a sentence on each network whose runs the rule needs and lacks."""
    return [
        lack.sentence(study.network_title(lack.experiment, lack.network))
        for lack in verdict.missing
    ]


def _network_line(network: NetworkVerdict) -> str:
    colour = COLOURS[network.word]
    value = f" {span(network.interval)}" if network.interval else ""
    return f"[{colour}]{network.mark} {network.words}[/] {escape(network.title)}{value}"


def experiment_table(entries: Iterable[Entry], *, verbose: bool = False) -> Table:
    """Return one line per experiment, or with `verbose` one per experiment and scale."""
    if verbose:
        return _scale_table(entries)
    table = plain_table("experiment", "about", "small", "paper", "runs")
    for name, group in groupby(entries, lambda entry: entry.experiment):
        by_scale = {entry.scale: entry for entry in group}
        costs = (
            duration(by_scale[scale].expected_seconds) if scale in by_scale else "-"
            for scale in ("small", "paper")
        )
        entry = next(iter(by_scale.values()))
        table.add_row(name, escape(entry.summary), *costs, _stored(list(by_scale.values())))
    return table


def _scale_table(entries: Iterable[Entry]) -> Table:
    table = plain_table("experiment", "scale", "runs", "expected", "stored")
    for name, group in groupby(entries, lambda entry: entry.experiment):
        for number_of_row, entry in enumerate(group):
            runs = f"{entry.total // entry.seeds} x {entry.seeds} seeds"
            cost = f"{duration(entry.expected_seconds)}, {entry.expected_on}"
            table.add_row("" if number_of_row else name, entry.scale, runs, cost, _stored([entry]))
    return table


def _stored(entries: Sequence[Entry]) -> str:
    """Return how many runs are whole, and how many the archive has: "4 here, 15 archived"."""
    whole = sum(entry.whole for entry in entries)
    archived = sum(entry.archived for entry in entries)
    words = [f"{whole} here" if whole else "", f"{archived} archived" if archived else ""]
    return ", ".join(filter(None, words)) or "-"


def plain_table(*columns: str) -> Table:
    """Return an empty table in the style of all others; short columns are not broken."""
    table = Table(*columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.no_wrap = column.header not in {"about", "says", "networks", ""}
    return table


def filled_table(content: verdict.Table, *, title: str) -> Table:
    """Return a table of evidence."""
    table = plain_table(*map(escape, content.columns))
    for column in table.columns:
        column.no_wrap = False
    table.title, table.title_justify = escape(title), "left"
    for row in content.rows:
        table.add_row(*(escape(cell_text(cell)) for cell in row))
    return table
