"""The report as one HTML page that needs nothing but itself: pictures, then marks, then details."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from rankscope.lab.judging.study import Drawing, StudyReport
from rankscope.lab.judging.verdict import LEGEND, MARKS, NetworkVerdict, Table, Verdict
from rankscope.lab.reporting.html import document, image_html, list_html, table_html
from rankscope.lab.reporting.numbers import duration, number, span
from rankscope.lab.reporting.run_table import RunRecord, origin_table, records_of, run_table
from rankscope.lab.reporting.terminal import COLOURS, OWN_CLAIMS, label, missing_sentences
from rankscope.store.files import replace_file

SCALE_SENTENCES = {
    "paper": "the papers' networks and schedules, where the data allow it",
    "small": "small networks and data that need no download",
    "smoke": "seconds per experiment, to see that everything works; the verdicts mean nothing",
}
RULES = (
    "Every claim has a rule with a bound. A seed meets the bound or misses it. Three seeds decide "
    "a network; with fewer we say what they show so far. A rule that was changed gives the reason, "
    "and unseen seeds decide it. Its first version stands beside it, with '-first' in its name."
)
SVG_DATE = re.compile(rb"<dc:date>[^<]*</dc:date>")
OUTCOMES = {True: "met", False: "missed", None: "cannot tell"}
TYPES = {".png": "png", ".svg": "svg+xml"}


@dataclass(frozen=True)
class Report:
    """The content of one page. seen: sentences for its head. command: makes this report."""

    studies: tuple[StudyReport, ...]
    command: str
    seen: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(fault for study in self.studies for fault in study.faults)


def write_page(report: Report, folder: Path) -> Path:
    """Write `folder`/index.html and return its path."""
    path = folder / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page(report).encode(), durable=False)
    return path


def page(report: Report) -> str:
    """Return the page as HTML."""
    scale = report.studies[0].study.scale
    title = f"{' and '.join(study.study.name for study in report.studies)} at scale {scale}"
    records = [record for study in report.studies for record in records_of(study.runs)]
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p class='faint'>{escape(SCALE_SENTENCES[scale].capitalize())}.</p>",
        list_html(report.seen, "seen"),
        _highlights(report.studies),
        "<h2 id='claims'>Claims</h2>",
        f"<p class='legend'>{escape(LEGEND)}</p>",
        *map(_marks, report.studies),
        "<h2 id='details'>Details</h2>",
        f"<p class='faint'>{escape(RULES)}</p>",
        *(_claim(study, verdict) for study in report.studies for verdict in study.verdicts),
        "<h2 id='figures'>All figures</h2>",
        *(_folded(study, drawing) for study in report.studies for drawing in study.drawings),
        "<h2 id='runs'>Runs</h2>",
        *_runs(records),
        _origin(report, records),
    ]
    return document(title, body)


def _highlights(studies: Iterable[StudyReport]) -> str:
    """The figures that each study names first, side by side where there is room."""
    figures = [_figure(study, drawing) for study in studies for drawing in _highlighted(study)]
    return f"<div class='pictures'>{''.join(figures)}</div>" if figures else ""


def _highlighted(study: StudyReport) -> list[Drawing]:
    return [
        drawing
        for name in study.study.highlights
        for drawing in study.drawings
        if drawing.name == name and drawing.files
    ]


def _figure(study: StudyReport, drawing: Drawing) -> str:
    title, _, _ = drawing.caption.partition("\n\n")
    caption = " ".join(title.split())
    link = f"<a href='#{_place(study, drawing.name)}'>more</a>"
    return (
        f"<figure id='{_place(study, drawing.name)}-picture'>{_image(drawing, caption)}"
        f"<figcaption>{escape(caption)} {link}</figcaption></figure>"
    )


def _marks(study: StudyReport) -> str:
    shown = [verdict for verdict in study.verdicts if not verdict.headline]
    own = [verdict for verdict in shown if verdict.ours and not study.study.ours]
    head = f"<h3>{escape(study.study.name)}</h3><p><cite>{escape(study.study.title)}</cite></p>"
    tables = _mark_table(study, [verdict for verdict in shown if verdict not in own])
    return f"{head}{tables}" + (f"<p>{OWN_CLAIMS}:</p>{_mark_table(study, own)}" if own else "")


def _mark_table(study: StudyReport, verdicts: Iterable[Verdict]) -> str:
    rows = "".join(
        f"<tr><td class='key'><a href='#{_place(study, verdict.claim)}'>{escape(verdict.claim)}"
        f"</a></td><td>{escape(verdict.sentence)}</td><td>{_mark_cells(study, verdict)}</td></tr>"
        for verdict in verdicts
    )
    return f"<table class='marks'><tbody>{rows}</tbody></table>"


def _mark_cells(study: StudyReport, verdict: Verdict) -> str:
    if verdict.fault:
        return f"<span class='red'>{escape(verdict.fault)}</span>"
    spans = [
        f"<span class='mark'>{escape(label(study.study, network))} {_mark(network)}</span>"
        for network in verdict.networks
    ]
    return " ".join(spans) or MARKS["no data"]


def _mark(network: NetworkVerdict) -> str:
    return f"<b class='{COLOURS[network.word]}' title='{escape(network.words)}'>{network.mark}</b>"


def _claim(study: StudyReport, verdict: Verdict) -> str:
    """Everything behind one verdict, folded away."""
    networks = Table(
        ("network", "verdict", "median", "range over seeds", "seeds"),
        tuple(
            (
                label(study.study, network),
                f"{network.mark} {network.words}",
                number(network.value),
                span(network.interval),
                "; ".join(
                    f"{outcome.seed}: {number(outcome.value)} ({OUTCOMES[outcome.met]})"
                    for outcome in network.seeds
                ),
            )
            for network in verdict.networks
        ),
        f"{verdict.quantity}; bound {verdict.bound}",
    )
    lines = [verdict.reason, *missing_sentences(study.study, verdict), *verdict.remarks]
    content = [
        table_html(networks),
        list_html(filter(None, lines)),
        *map(table_html, verdict.tables),
    ]
    summary = f"<b>{escape(verdict.claim)}</b> {escape(verdict.sentence)}"
    return (
        f"<details id='{_place(study, verdict.claim)}'><summary>{summary}</summary>"
        f"{''.join(content)}</details>"
    )


def _folded(study: StudyReport, drawing: Drawing) -> str:
    title, _, text = drawing.caption.partition("\n\n")
    heading = " ".join(title.split())
    paragraphs = "".join(f"<p>{escape(' '.join(p.split()))}</p>" for p in text.split("\n\n") if p)
    if drawing in _highlighted(study):  # each picture is in the page once
        image = f"<p><a href='#{_place(study, drawing.name)}-picture'>The figure is above.</a></p>"
    else:
        image = _image(drawing, heading) if drawing.files else ""
    name = drawing.name.replace("-", " ").capitalize()
    return (
        f"<details id='{_place(study, drawing.name)}'><summary><b>{escape(study.study.name)}, "
        f"{escape(name)}</b> {escape(heading)}</summary><figure>{image}<figcaption>{paragraphs}"
        f"{list_html(drawing.remarks)}</figcaption></figure></details>"
    )


def _image(drawing: Drawing, title: str) -> str:
    """The smaller of the files, inlined. The same runs give the same bytes."""
    smallest = min(drawing.files, key=lambda path: path.stat().st_size)
    content = SVG_DATE.sub(b"", smallest.read_bytes())
    return image_html(content, TYPES[smallest.suffix], title)


def _runs(records: Iterable[RunRecord]) -> Iterable[str]:
    for experiment, group in groupby(records, lambda record: record.key.experiment):
        runs = list(group)
        whole = sum(not record.missing for record in runs)
        seconds = sum(record.seconds for record in runs)
        summary = f"{experiment}: {whole} of {len(runs)} runs, {duration(seconds)} in all"
        table = table_html(run_table(runs))
        yield f"<details><summary>{escape(summary)}</summary>{table}</details>"


def _origin(report: Report, records: list[RunRecord]) -> str:
    return (
        "<details><summary>Where the runs were made, and the command for this page</summary>"
        f"{table_html(origin_table(records))}<pre>{escape(report.command)}</pre></details>"
    )


def _place(study: StudyReport, name: str) -> str:
    return escape(f"{study.study.name}-{name}")
