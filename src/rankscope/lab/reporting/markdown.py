"""Markdown tables of verdicts and runs, and filling them in between markers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from textwrap import wrap

from rankscope.lab.experiment import Study
from rankscope.lab.judging.selected_runs import Seeds
from rankscope.lab.judging.verdict import LEGEND, NetworkVerdict, Table, Verdict
from rankscope.lab.reporting.numbers import cell_text, number, span
from rankscope.lab.reporting.terminal import (
    OWN_CLAIMS,
    label,
    missing_sentences,
    variants_by_title,
)

NO_BREAK = "\N{NO-BREAK SPACE}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def tables_block(tables: Iterable[Table]) -> str:
    """Return tables below each other, each under its title."""
    blocks = (
        (
            f"*{content.title}*",
            table(content.columns, [[*map(cell_text, row)] for row in content.rows]),
        )
        for content in tables
    )
    return "\n\n".join("\n\n".join(block) for block in blocks)


def claims_table(
    studies: Iterable[tuple[Study, Sequence[Verdict]]], *, page: Callable[[Study, Verdict], str]
) -> str:
    """Return the claims with their marks: a table of the papers', and tables of our own if any.

    Claims of our own about a paper's runs have one, and each study of our own has one under its
    title. First rules that were changed are left out.
    page: returns the page of a claim as seen from the document.
    """
    rows: dict[str, list[tuple[str, ...]]] = {"": []}
    for study, verdicts in studies:
        for verdict in (verdict for verdict in verdicts if not verdict.headline):
            heading = study.title if study.ours else OWN_CLAIMS if verdict.ours else ""
            address = f"{page(study, verdict)}#{verdict.claim.lower()}"
            row = (
                f"{verdict.claim} {verdict.sentence}",
                marks(study, verdict.networks),
                f"[evidence]({address})",
            )
            rows.setdefault(heading, []).append(row)
    columns, papers = ("claim", "marks", ""), rows.pop("")
    blocks = [table(columns, papers)] if papers else []
    for heading, rows_of_heading in rows.items():
        blocks += [f"{heading}:", table(columns, rows_of_heading)]
    return "\n\n".join([*blocks, LEGEND])


def marks(study: Study, networks: Iterable[NetworkVerdict]) -> str:
    """Return a mark for each network; variants of one network and part stand side by side.

    A mark never begins a line: the space before it does not break.
    """
    return " · ".join(
        f"{title}{NO_BREAK}{''.join(network.mark for network in variants)}"
        for title, variants in variants_by_title(study, networks).items()
    )


def claim_block(study: Study, verdicts: Sequence[Verdict]) -> str:
    """Return the results of one claim: its sentence, and a table for each of its rules.

    verdicts: the one that decides, and then that of the first rule if it was changed. The reason
    for the change stands with the last one.
    """
    sentence = f"**The claim:** {verdicts[0].sentence}."
    reasons = [*[""] * (len(verdicts) - 1), verdicts[0].reason]
    rules = map(_rule_block, repeat(study), verdicts, reasons)
    return "\n\n".join([sentence, *rules])


def _rule_block(study: Study, verdict: Verdict, reason: str) -> str:
    rows = [
        (
            label(study, network),
            f"{network.mark} {network.words}",
            span(network.interval),
            ", ".join(map(str, network.known_seeds)) or "-",
            network.quantity,
        )
        for network in verdict.networks
    ]
    columns = ("network", "verdict", "value over seeds", "seeds", "note")
    width = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    name = "The first rule, replaced" if verdict.headline else "The rule"
    rule = f"**{name} ({verdict.claim}):** {verdict.quantity}. Bound: {verdict.bound}. {reason}"
    rule = "\n".join(wrap(rule, 160))
    missing = [f"{sentence}." for sentence in missing_sentences(study, verdict)]
    return "\n\n".join([rule, table(columns[:width], [row[:width] for row in rows]), *missing])


def outcome_table(runs: Mapping[str, Seeds]) -> str:
    """Return what trainings reached: the last losses and accuracies of each run, over seeds.

    runs: the title of each run and its seeds. Runs without a training loss are left out.
    """
    columns = ("run", "seeds", "steps", "training loss", "held-out loss", "held-out correct")
    rows = [_outcome_row(title, seeds) for title, seeds in runs.items()]
    return table(columns, [row for row in rows if row])


def _outcome_row(title: str, seeds: Seeds) -> tuple[str, ...]:
    ends = [ds.isel(step=-1) for ds in seeds.values() if "training_loss" in ds]
    if not ends:
        return ()

    def values(name: str) -> list[float]:
        return [float(end[name]) for end in ends if name in end]

    correct = values("validation_accuracy") or [1 - e for e in values("validation_error_rate")]
    stopped = any(end.attrs.get("stopped_at") is not None for end in ends)
    steps = _range([float(end["step"]) for end in ends], "{:,.0f}".format)
    return (
        title,
        ", ".join(map(str, seeds)),
        f"{steps}{' (settled)' if stopped else ''}",
        _range(values("training_loss")),
        _range(values("validation_loss")),
        _range(correct, "{:.1%}".format),
    )


def _range(values: Sequence[float], show: Callable[[float], str] = number) -> str:
    return span((min(values), max(values)) if values else None, show)


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """Return the text with each block between <!-- begin: NAME --> and <!-- end: NAME -->."""

    def block(match: re.Match[str]) -> str:
        content = blocks.get(match["name"])
        return match[0] if content is None else f"{match['begin']}\n{content}\n{match['end']}"

    return re.sub(
        r"(?P<begin><!-- begin: (?P<name>.+?) -->).*?(?P<end><!-- end: (?P=name) -->)",
        block,
        text,
        flags=re.DOTALL,
    )


def _cell(text: str) -> str:
    return re.sub(r"[ \n]+", " ", text).strip().replace("|", "\\|")
