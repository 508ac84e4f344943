"""What the runs of papers show, gathered for one page and one file of verdicts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.lab.catalogue import summary
from rankscope.lab.experiment import Scale
from rankscope.lab.findings import Findings, examine, joint_subject, subject_of, write_json
from rankscope.lab.paper import Paper
from rankscope.lab.report_runs import RunRecord, record
from rankscope.lab.shelf import read_shelf
from rankscope.lab.verdict import Verdict


@dataclass(frozen=True)
class Part:
    """What was judged together: all of a paper (`experiment` is ""), or one experiment."""

    experiment: str
    summary: str
    findings: Findings


@dataclass(frozen=True)
class PaperReport:
    """One paper: what its runs show, and the runs themselves by experiment."""

    paper: Paper
    parts: tuple[Part, ...]
    runs: dict[str, tuple[RunRecord, ...]]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict for part in self.parts for verdict in part.findings.verdicts)


@dataclass(frozen=True)
class Report:
    """Papers of one scale. command: what makes this report. note: what a reader should know."""

    scale: Scale
    papers: tuple[PaperReport, ...]
    command: str
    note: str = ""

    @property
    def findings(self) -> tuple[Findings, ...]:
        return tuple(part.findings for paper in self.papers for part in paper.parts)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(verdict for paper in self.papers for verdict in paper.verdicts)

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        every = [records for paper in self.papers for records in paper.runs.values()]
        return tuple(record for records in every for record in records)


def report_on(
    papers: tuple[Paper, ...],
    out: Path,
    folder: Path,
    *,
    command: str,
    note: str = "",
    seeds: dict[str, tuple[int, ...]] | None = None,
) -> Report:
    """Judge all claims and draw all figures, which are written to `folder`/figures.

    seeds: those that have to be there, by experiment; otherwise what is there counts.
    """
    reports = tuple(_report_on(paper, out, folder / "figures", seeds or {}) for paper in papers)
    return Report(papers[0].scale, reports, command, note)


def _report_on(
    paper: Paper, out: Path, folder: Path, seeds: dict[str, tuple[int, ...]]
) -> PaperReport:
    shelves = {
        experiment.name: read_shelf(experiment, out, seeds=seeds.get(experiment.name, ()))
        for experiment in paper.experiments
    }
    alone = [subject_of(experiment) for experiment in paper.experiments]
    subjects = [joint_subject(paper)] if paper.joint else alone
    parts = tuple(
        Part(
            "" if paper.joint else subject.name,
            "" if paper.joint else summary(subject.name),
            examine(subject, shelves, folder / subject.name),
        )
        for subject in subjects
    )
    runs = {
        name: tuple(
            record(run, seed, entry)
            for run, entries in shelf.items()
            for seed, entry in entries.items()
        )
        for name, shelf in shelves.items()
    }
    return PaperReport(paper, parts, runs)


def report_json(report: Report) -> dict[str, Any]:
    """What programs read; `experiment` is null where a paper's runs were judged together."""
    return {
        "rankscope": __version__,
        "scale": report.scale,
        "verdicts": [
            {"paper": each.paper.name, "experiment": part.experiment or None, **verdict.to_json()}
            for each in report.papers
            for part in each.parts
            for verdict in part.findings.verdicts
        ],
    }


def write_verdicts(report: Report, folder: Path) -> Path:
    path = folder / "verdicts.json"
    write_json(report_json(report), path)
    return path
