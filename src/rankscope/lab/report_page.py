"""The report as one HTML page that needs nothing but itself: claims first, then figures, runs."""

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from rankscope.figures.style import FIGURE_DPI
from rankscope.lab import verdict
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.findings import Drawing
from rankscope.lab.report import PaperReport, Part, Report
from rankscope.lab.report_runs import RunRecord, columns_of, cost, expectation, how_many, origins
from rankscope.lab.report_style import STYLE
from rankscope.lab.tables import (
    Standing,
    cell,
    duration,
    network_outcome,
    number,
    range_over,
    second_rule,
    span,
    standing,
)
from rankscope.lab.verdict import Holds, NetworkVerdict, Verdict
from rankscope.store.files import replace_file

SYMBOLS: dict[Holds, str] = {"yes": "✔", "no": "✘", "undecided": "?"}
MEANING: dict[Scale, str] = {
    "paper": "the paper's networks and numbers of steps; what differs stands on each experiment's "
    "page (lm reads WikiText-2, lstm a sample of LibriSpeech)",
    "small": "small networks and data that need no download, so that all of it takes minutes on "
    "two cores; decays are chosen so that the sum of rate x decay over training stays near the "
    "paper's",
    "smoke": "seconds of each experiment, to see that everything works; its verdicts mean nothing",
}
ABOUT = (
    "Each claim is judged on the stored runs that this page lists, by a rule that was fixed before "
    "any run. A rule has a bound that each seed meets or not: yes if all of at least three seeds "
    "do, no if none of at least three does, undecided otherwise. Where a rule turned out to miss "
    "the point, a second one, made later and with a longer name, stands beside it.",
    "Each network is judged by itself; of an undecided one the page says in how many of its seeds "
    "the bound is met. A claim about several networks holds if it does for each of them, and fails "
    "if it fails for one. Where a run that it needs is not there, the seed or network is left out "
    "and named, and the claim cannot hold. An undecided claim waits for runs if some of them are "
    "not there or a network has fewer than three seeds.",
)
DATE = re.compile(rb"<dc:date>[^<]*</dc:date>")  # of an SVG
ENLARGE = "A click on a figure shows it at its full size, another one fits it to the page again."
PAGE_DPI = 96
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def write_page(report: Report, folder: Path) -> Path:
    path = folder / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page(report).encode(), durable=False)
    return path


def page(report: Report) -> str:
    """The whole page."""
    names = " and ".join(each.paper.name for each in report.papers)
    title = f"{names}, reproduced at scale {report.scale}"
    body = [
        f"<h1>{escape(title)}</h1>",
        *(
            f"<p><b>{escape(each.paper.name)}</b>: <cite>{escape(each.paper.title)}</cite></p>"
            for each in report.papers
        ),
        *(f"<p>{escape(paragraph)}</p>" for paragraph in ABOUT),
        f"<p>Scale <b>{report.scale}</b>: {escape(MEANING[report.scale])}.</p>",
        f"<p class='remark'>{escape(report.note)}</p>" if report.note else "",
        _tally(report.verdicts),
        _contents(report),
        *map(_paper, report.papers),
        _provenance(report),
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body>\n</html>\n"
    )


def _tally(verdicts: Sequence[Verdict]) -> str:
    """Verdicts by the rules that were fixed before any run; second rules are told apart."""
    fixed = [each for each in verdicts if not second_rule(each.claim)]
    claims = len({each.claim for each in fixed})
    head = _several(claims, "claim")
    if claims < len(fixed):  # some were judged in several experiments
        head = f"{len(fixed)} verdicts on {head}, some judged in several experiments"
    second = [each for each in verdicts if second_rule(each.claim)]
    besides = f"<br>and {_several(len(second), 'second rule')}: {_counts(second)}" if second else ""
    return f"<p class='tally'>{head}:<br>{_counts(fixed)}{besides}</p>"


def _counts(verdicts: Sequence[Verdict]) -> str:
    """Undecided ones by whether more runs could settle them."""
    counts = Counter(map(standing, verdicts))
    shown: dict[Standing, str] = {
        "yes": _holds("yes"),
        "no": _holds("no"),
        "undecided": f"{_holds('undecided')} with all their runs",
        "waiting": _holds("undecided", f"{SYMBOLS['undecided']} waiting for runs"),
    }
    return "".join(f"<span>{counts[kind]} {said}</span>" for kind, said in shown.items())


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _contents(report: Report) -> str:
    links = []
    for each in report.papers:
        keys = "".join(
            f"<a href='#{_place(part, judged)}'>{escape(judged.claim)} "
            f"<span class='{judged.holds}'>{SYMBOLS[judged.holds]}</span></a> "
            for part in each.parts
            for judged in part.findings.verdicts
        )
        links.append(f"<li class='keys'>{keys}</li>")
        for kind in ("claims", "figures", "runs"):
            place = f"{each.paper.name}-{kind}"
            links.append(f"<li><a href='#{place}'>{escape(each.paper.name)}: {kind}</a></li>")
    links.append("<li><a href='#provenance'>Cost and provenance</a></li>")
    return f"<nav><ul>{''.join(links)}</ul></nav>"


def _paper(report: PaperReport) -> str:
    name = escape(report.paper.name)
    experiments = {each.name: each for each in report.paper.experiments}
    return "\n".join(
        [
            f"<h2 id='{name}-claims'>{name}: claims</h2>",
            *map(_claims, report.parts),
            f"<h2 id='{name}-figures'>{name}: figures</h2>",
            f"<p class='faint screen'>{ENLARGE}</p>",
            *map(_figures, report.parts),
            f"<h2 id='{name}-runs'>{name}: runs</h2>",
            *(_runs(experiments[of], records) for of, records in report.runs.items()),
        ]
    )


def _claims(part: Part) -> str:
    interval = range_over(part.findings.verdicts)
    columns = ("claim", "the paper says", "verdict", "value", "bound", interval)
    head = "".join(f"<th>{column}</th>" for column in columns)
    rows = "".join(_claim(part, each) for each in part.findings.verdicts)
    return (
        _part_heading(part)
        + f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _part_heading(part: Part) -> str:
    if not part.experiment:
        return ""
    return f"<h3>{escape(part.experiment)}</h3><p class='faint'>{escape(part.summary)}</p>"


def _claim(part: Part, judged: Verdict) -> str:
    quantity = f"<span class='quantity'>{escape(judged.quantity)}</span>" if judged.quantity else ""
    return (
        f"<tr id='{_place(part, judged)}'><td class='key'>{escape(judged.claim)}</td>"
        f"<td>{escape(judged.sentence)}{quantity}</td><td>{_holds(judged.holds)}</td>"
        f"<td class='number' data-label='value'>{escape(number(judged.value))}</td>"
        f"<td class='bound' data-label='bound'>{escape(judged.bound) or '-'}</td>"
        f"<td class='number' data-label='{range_over([judged])}'>"
        f"{escape(span(judged.interval))}</td>"
        f"</tr>{_behind(judged)}"
    )


def _place(part: Part, judged: Verdict) -> str:
    """The anchor of a claim, which may stand in several experiments."""
    return escape("-".join(filter(None, ("claim", part.experiment, judged.claim))))


def _behind(judged: Verdict) -> str:
    """Networks, evidence and tables, folded away."""
    content = [
        _table(
            ("network", "verdict", "value", "range over seeds", "seeds"),
            [_network(network) for network in judged.networks],
        )
        if judged.networks
        else "",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in judged.evidence) + "</ul>"
        if judged.evidence
        else "",
        *map(_evidence, judged.tables),
    ]
    if not any(content):
        return ""
    short = "; ".join(f"{escape(each.network)} {_said(each)}" for each in judged.networks)
    summary = f"<summary>what stands behind it: {short or 'evidence'}</summary>"
    return (
        f"<tr class='behind'><td></td><td colspan='5'><details>{summary}{''.join(content)}"
        "</details></td></tr>"
    )


def _said(network: NetworkVerdict) -> str:
    """The verdict; of an undecided network in how many of its seeds the bound is met."""
    said = network_outcome(network)
    return _holds(network.holds, "" if said == network.holds else said)


def _network(network: NetworkVerdict) -> list[str]:
    marks = {True: "met", False: "not met", None: "cannot tell"}
    seeds = (f"{each.seed}: {number(each.value)} ({marks[each.met]})" for each in network.seeds)
    return [
        escape(network.network),
        _holds(network.holds),
        escape(number(network.value)),
        escape(span(network.interval)),
        escape("; ".join(seeds)),
    ]


def _evidence(table: verdict.Table) -> str:
    rows = ([escape(cell(each)) for each in row] for row in table.rows)
    return _table(table.columns, rows, caption=table.title)


def _table(columns: Iterable[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """Columns and caption are text, cells are HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"<div class='scroll'><table>{named}<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _holds(holds: Holds, said: str = "") -> str:
    return f"<span class='verdict {holds}'>{said or f'{SYMBOLS[holds]} {holds}'}</span>"


def _figures(part: Part) -> str:
    return _part_heading(part) + "".join(_figure(part, each) for each in part.findings.drawings)


def _figure(part: Part, drawing: Drawing) -> str:
    first, _, rest = drawing.caption.partition("\n\n")
    title = ". ".join(filter(None, (_title(drawing.name), _one_line(first))))
    remarks = "".join(f"<p class='remark'>{escape(line)}</p>" for line in drawing.remarks)
    place = "-".join(filter(None, (part.experiment, drawing.name)))
    image = _image(drawing.files, title) if drawing.files else ""
    paragraphs = "".join(f"<p>{escape(_one_line(each))}</p>" for each in rest.split("\n\n") if each)
    return (
        f"<figure id='{escape(place)}'>{image}<figcaption><b>{escape(title)}</b>"
        f"{paragraphs}{remarks}</figcaption></figure>"
    )


def _title(name: str) -> str:
    words = re.sub(r"(?<!\de)-", " ", name)  # not the minus of 1e-32
    return words[:1].upper() + words[1:]


def _image(files: Sequence[Path], title: str) -> str:
    """The smallest of the files within the page, no wider than that; a click shows its full size.

    The box of a checkbox that nobody sees remembers the click, so that no script is needed.
    """
    smallest = min(files, key=lambda path: path.stat().st_size)
    undated = DATE.sub(b"", smallest.read_bytes())  # the same runs give the same page
    source = f"data:{TYPES[smallest.suffix]};base64,{b64encode(undated).decode()}"
    png = next(path for path in files if path.suffix == ".png")
    pixels = int.from_bytes(png.read_bytes()[16:20])  # where the header says how wide it is
    width = pixels * PAGE_DPI // FIGURE_DPI
    return (
        "<label class='picture'><input type='checkbox' aria-label='full size'>"
        f"<span class='frame'><img alt='{escape(title)}' width='{width}' src='{source}'></span>"
        "</label>"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _runs(experiment: Experiment, records: Sequence[RunRecord]) -> str:
    columns = columns_of(records)
    missing = any(each.missing for each in records)
    collapsed = sum(bool(each.collapsed) for each in records)
    seconds = sum(each.seconds for each in records)
    said = [
        how_many(experiment, records),
        f"{collapsed} collapsed or diverged" if collapsed else "",
        f"{duration(seconds)} summed over runs" if seconds else "",
    ]
    rows = [
        [each.name, str(each.seed), *(each.cells.get(c, "") for c in columns), each.missing]
        for each in records
    ]
    head = ("run", "seed", *columns, "why it is not there" if missing else "")
    return (
        f"<details><summary>{escape(experiment.name)}: {'; '.join(filter(None, said))}</summary>"
        f"{_table(head, ([escape(each) for each in row] for row in rows))}</details>"
    )


def _provenance(report: Report) -> str:
    spent = cost(report.runs)
    expected = expectation([each for paper in report.papers for each in paper.paper.experiments])
    lines = [f"expected of all runs, whether there or not: {expected}"] if expected else []
    if spent:
        lines = [
            f"summed over runs, several at a time: {duration(spent.together)}",
            f"in which at least one was running: {duration(spent.busy)}",
            *lines,
            f"first run begun {spent.first}, last ended {spent.last}",
        ]
    rows = [
        [escape(key), ", ".join(f"{escape(what)} ({_several(n, 'run')})" for what, n in values)]
        for key, values in origins(report.runs).items()
    ]
    return (
        "<h2 id='provenance'>Cost and provenance</h2><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in lines)
        + "</ul>"
        + _table(("made with", ""), rows)
        + f"<p>The same again:</p><pre>{escape(report.command)}</pre>"
    )
