"""The generated parts of README and documentation: tables of claims and runs, and figures.

Tables stand between markers, and so do numbers in sentences (`page_values`). A document gets the
figures it shows: an image at "figures/<study>/<figure>.png" is drawn by that figure of that study.
Markers named "figure <name>" hold the image of a figure whose runs may not be there yet; it appears
with them. A paper has one page. A study of our own has a folder of pages, docs/<study>, with
<experiment>.md for each experiment.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from PIL import Image

from rankscope.lab.archive.due import due_table
from rankscope.lab.experiment import Experiment, FigureRule, Study
from rankscope.lab.judging.selected_runs import Seeds, all_runs
from rankscope.lab.judging.study import StudyReport, judge_study
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.reporting.markdown import (
    claim_block,
    claims_table,
    fill,
    outcome_table,
    table,
    tables_block,
)
from rankscope.lab.reporting.numbers import duration
from rankscope.lab.reporting.page_values import fill_values
from rankscope.lab.running.stored_run import runs_on_disk

README = "README.md"
PAGES = "docs/papers"
INDEX = f"{PAGES}/index.md"
RUNNING = "docs/howto/papers.md"
FIGURES = f"{PAGES}/figures"
DPI = 120
COLOURS = 256


def write_documents(
    archive: Path, reports: Sequence[StudyReport], studies: Sequence[Study]
) -> list[str]:
    """Fill the tables of the documents beside the archive, and draw the figures they show.

    Return the tracebacks of figures that raised.
    studies: all that are declared, of which some may have no archived run.
    """
    root, faults = archive.resolve().parent, list[str]()
    for path, text in _filled(root, archive, reports, studies).items():
        path.write_text(text)
    for report in reports:
        names = _shown_figures(root, report.study)
        shown = tuple(figure for figure in report.study.figures if figure.name in names)
        study = replace(report.study, claims=(), figures=shown, highlights=())
        folder = root / FIGURES / study.name
        faults += judge_study(study, report.runs, figures=folder, save=save_png).faults
    return faults


def outdated_documents(
    archive: Path, reports: Sequence[StudyReport], studies: Sequence[Study]
) -> list[str]:
    """Return a sentence on each document whose tables or figures are not those of the archive."""
    root = archive.resolve().parent
    advice = f"run rankscope results keep {archive}"
    stale = [
        f"{path.name}: its tables are out of date; {advice}"
        for path, text in _filled(root, archive, reports, studies).items()
        if path.read_text() != text
    ]
    wanted = {
        root / FIGURES / report.study.name / f"{name}.png"
        for report in reports
        for name in _shown_figures(root, report.study)
    }
    return stale + [f"{path} is missing; {advice}" for path in sorted(wanted) if not path.exists()]


def _filled(
    root: Path,
    archive: Path,
    reports: Sequence[StudyReport],
    studies: Sequence[Study],
) -> dict[Path, str]:
    """The new text of every document that exists."""
    verdicts = [(report.study, report.verdicts) for report in reports]
    values = {
        value.name: value.text(report.verdicts)
        for report in reports
        for value in report.study.page_values
    }
    blocks = {
        README: {"claims": claims_table(map(_with_runs, verdicts), page=_page_from(README))},
        INDEX: {
            "trainings": outcome_table(_trainings(reports)),
            "runs": table(*archive_table([report.study for report in reports], archive)),
        },
        RUNNING: {"due": table(*due_table(studies, archive))},
        **{
            page: {
                **_claim_blocks(report, page),
                **_page_tables(report, archive),
                **_images(report, page),
                **{f"text {text.name}": text.content(values) for text in report.study.page_texts},
            }
            for report in reports
            for page in _pages(root, report.study)
        },
    }
    paths = {root / name: texts for name, texts in blocks.items() if (root / name).exists()}
    return {
        path: fill_values(fill(path.read_text(), texts), values) for path, texts in paths.items()
    }


def _with_runs(judged: tuple[Study, tuple[Verdict, ...]]) -> tuple[Study, tuple[Verdict, ...]]:
    """Leave out claims of a study of our own that nothing has been run for."""
    study, verdicts = judged
    tried = (v for v in verdicts if any(network.seeds for network in v.networks))
    return study, tuple(tried) if study.ours else verdicts


def _pages(root: Path, study: Study) -> list[str]:
    """The pages of a study that are there, below the root."""
    if not study.ours:
        page = f"{PAGES}/{study.name}.md"
        return [page] if (root / page).exists() else []
    return [
        f"docs/{study.name}/{path.name}"
        for path in sorted((root / "docs" / study.name).glob("*.md"))
    ]


def _page_from(document: str) -> Callable[[Study, Verdict], str]:
    """Return a function that gives the page of a claim as seen from a document."""

    def page(study: Study, verdict: Verdict) -> str:
        experiments = [network.experiment for network in verdict.networks]
        own = f"docs/{experiments[0] if experiments else f'{study.name}/index'}.md"
        target = own if study.ours else f"{PAGES}/{study.name}.md"
        return relpath(target, dirname(document) or ".")

    return page


def _claim_blocks(report: StudyReport, page: str) -> dict[str, str]:
    study, verdicts = report.study, report.verdicts
    return {
        f"marks {study.name}": claims_table([(study, verdicts)], page=_page_from(page)),
        **{
            f"claim {verdict.claim}": claim_block(
                study, [verdict, *(v for v in verdicts if v.headline == verdict.claim)]
            )
            for verdict in verdicts
            if not verdict.headline
        },
    }


def _page_tables(report: StudyReport, archive: Path) -> dict[str, str]:
    return {
        entry.name: tables_block(entry.make(report.runs.select(entry.needs)[0], archive))
        for entry in report.study.page_tables
    }


def _images(report: StudyReport, page: str) -> dict[str, str]:
    """Return the image of every figure that some seed has all runs for, as seen from the page."""
    folder = relpath(f"{FIGURES}/{report.study.name}", dirname(page))
    return {
        f"figure {figure.name}": f"![{_title(figure)}]({folder}/{figure.name}.png)"
        for figure in report.study.figures
        if len(report.runs.select(figure.needs)[0])
    }


def _title(figure: FigureRule) -> str:
    """The first line of the caption, without its full stop."""
    return figure.caption.partition("\n")[0].rstrip(".")


def _trainings(reports: Iterable[StudyReport]) -> dict[str, Seeds]:
    """The seeds of every archived run of the papers, by a title that names its experiment."""
    papers = (report for report in reports if not report.study.ours)
    selected = (report.runs.select(all_runs)[0] for report in papers)
    return {f"{key.experiment}: {key.title}": runs[key] for runs in selected for key in runs}


def _shown_figures(root: Path, study: Study) -> set[str]:
    pages = (root / README, *(root / page for page in _pages(root, study)))
    texts = (page.read_text() for page in pages if page.exists())
    pattern = rf"figures/{re.escape(study.name)}/([\w-]+)\.png"
    return {name for text in texts for name in re.findall(pattern, text)}


def save_png(figure: Any, path: Path) -> tuple[Path, ...]:
    """Write a PNG with a palette, which takes a third of the room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file, drawn = path.with_name(f"{path.name}.png"), BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    picture = Image.open(drawn).convert("RGB")
    palette = picture.quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
    palette.save(file, optimize=True)
    return (file,)


def archive_table(
    studies: Iterable[Study], archive: Path
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of what the archive holds and what it cost, per experiment."""
    columns = ("experiment", "runs", "seeds", "time", "MB", "device", "commits")
    experiments = [experiment for study in studies for experiment in study.experiments]
    rows = [_archive_row(experiment, archive) for experiment in experiments]
    return columns, [row for row in rows if row]


def _archive_row(experiment: Experiment, archive: Path) -> tuple[str, ...]:
    stored = runs_on_disk(experiment, archive)
    files = [(run.attrs, run.path.stat().st_size) for run in stored]
    if not files:
        return ()

    def distinct(name: str, characters: int) -> str:
        values = (str(attrs.get(name, "-"))[:characters] for attrs, _ in files)
        return ", ".join(dict.fromkeys(values))

    return (
        experiment.name,
        str(len(files)),
        ", ".join(map(str, sorted({run.seed for run in stored}))),
        duration(sum(attrs["wall_seconds"] for attrs, _ in files)),
        f"{sum(size for _, size in files) / 1e6:.1f}",
        distinct("device", 30),
        distinct("commit", 7),
    )
