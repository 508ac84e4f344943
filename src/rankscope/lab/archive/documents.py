"""The generated parts of README and documentation: tables of claims, claim by claim, and runs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rankscope.lab.archive.paths import archive_path
from rankscope.lab.experiment import Experiment, Study
from rankscope.lab.judging.available_runs import load_runs
from rankscope.lab.judging.runs import all_runs
from rankscope.lab.judging.study import StudyReport
from rankscope.lab.judging.verdict import Table
from rankscope.lab.reporting.markdown import (
    claim_block,
    claims_table,
    fill,
    outcome_table,
    table,
)
from rankscope.lab.reporting.terminal import cell_text, duration
from rankscope.lab.running.stored_run import seeds_on_disk, stored_runs

README = "README.md"
PAGES = "docs/papers"


def write_documents(archive: Path, reports: Sequence[StudyReport]) -> list[str]:
    """Fill the tables into the documents beside the archive; a sentence on what went wrong."""
    for path, text in _filled(archive, reports).items():
        path.write_text(text)
    return []


def outdated_documents(archive: Path, reports: Sequence[StudyReport]) -> list[str]:
    """Return a sentence on each document whose tables are not those of the verdicts."""
    return [
        f"{path.name}: its tables are out of date; run rankscope results keep {archive}"
        for path, text in _filled(archive, reports).items()
        if path.read_text() != text
    ]


def _filled(archive: Path, reports: Sequence[StudyReport]) -> dict[Path, str]:
    """The new text of every document that exists."""
    root = archive.resolve().parent
    verdicts = [(report.study, report.verdicts) for report in reports]
    blocks = {root / README: {"claims": claims_table(verdicts, pages=PAGES)}}
    for report in reports:
        page = root / PAGES / f"{report.study.name}.md"
        blocks[page] = _page_blocks(report, archive)
    return {path: fill(path.read_text(), made) for path, made in blocks.items() if path.exists()}


def _page_blocks(report: StudyReport, archive: Path) -> Mapping[str, str]:
    by_claim: dict[str, list[int]] = {}
    for place, verdict in enumerate(report.verdicts):
        by_claim.setdefault(verdict.claim.partition("-")[0], []).append(place)
    return {
        **{
            f"claim {claim}": claim_block(report.study, [report.verdicts[i] for i in places])
            for claim, places in by_claim.items()
        },
        "marks": claims_table([(report.study, report.verdicts)], pages="."),
        "outcomes": outcome_table(_trainings(report.study, archive)),
        "runs": _markdown(archive_table([report.study], archive)),
    }


def _trainings(study: Study, archive: Path) -> dict[str, Mapping[int, object]]:
    runs, _ = load_runs(study.experiments, archive).select(lambda keys: all_runs(keys))
    return {f"{key.experiment}: {key.title}": runs[key] for key in runs}


def archive_table(studies: Iterable[Study], archive: Path) -> Table:
    """Return what the archive holds and what it cost, a row per experiment and device."""
    rows = [
        row
        for study in studies
        for experiment in study.experiments
        for row in _experiment_rows(experiment, archive)
    ]
    columns = ("experiment", "runs", "seeds", "time, summed over runs", "MB", "device", "commits")
    return Table(columns, tuple(rows))


def _experiment_rows(experiment: Experiment, archive: Path) -> list[tuple[str, ...]]:
    seeds = tuple(sorted(seeds_on_disk(experiment, archive)))
    files = [
        (stored.attrs, archive_path(archive, stored.key, stored.seed).stat().st_size)
        for stored in stored_runs(experiment, archive, seeds=seeds)
        if stored.path.exists()
    ]
    files.sort(key=lambda file: str(file[0].get("device")))
    rows = []
    for device, group in groupby(files, lambda file: str(file[0].get("device"))):
        attrs, sizes = zip(*group, strict=True)
        rows.append(
            (
                experiment.name,
                str(len(attrs)),
                ", ".join(map(str, sorted({each["seed"] for each in attrs}))),
                duration(sum(each["wall_seconds"] for each in attrs)),
                f"{sum(sizes) / 1e6:.1f}",
                device,
                ", ".join(dict.fromkeys(str(each.get("commit", "-"))[:7] for each in attrs)),
            )
        )
    return rows


def _markdown(content: Table) -> str:
    return table(content.columns, [[cell_text(cell) for cell in row] for row in content.rows])
