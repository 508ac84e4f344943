"""The commands `rankscope reproduce` and `rankscope report`: whole papers, on one page.

<out>/<paper>/report-<scale>/   index.html   the page
                                verdicts.json
                                figures/     as PNG and SVG
<out>/report-<scale>/           the same of all papers together
"""

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rankscope.lab.catalogue import load_paper, paper_names
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.kept_run import is_results
from rankscope.lab.paper import Paper
from rankscope.lab.placement import Placement, placed
from rankscope.lab.procedure import check_folder, name_failures, run_missing, say
from rankscope.lab.report import Report, report_on, write_verdicts
from rankscope.lab.report_page import write_page
from rankscope.lab.stored_run import StoredRun, stored_runs
from rankscope.lab.tables import verdict_table


def reproduce(
    papers: tuple[Paper, ...],
    out: Path,
    folder: Path,
    *,
    command: str,
    note: str = "",
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    placement: Placement | None = None,
) -> bool:
    """Run what is missing of all papers in one pool, and report on it in `folder`.

    True if no run, claim or figure failed, whatever the verdicts are. Options as of `conduct`.
    """
    talk, placement = Console(stderr=True), placement or Placement()
    if placement.follow is not None:
        return placement.follow()
    check_folder(out)
    wanted = pool([e for paper in papers for e in paper.experiments], out, placement, seeds=seeds)
    ended = run_missing(wanted, placement, jobs=jobs, talk=talk)
    say(talk, "Judging claims and drawing figures ...")
    needed = {e.name: seeds or e.seeds for paper in papers for e in paper.experiments}
    report = report_on(papers, out, folder, command=command, note=note, seeds=needed)
    name_failures(wanted, ended, talk)
    show(report, folder, talk)
    return not any(run.failure for run in ended) and not any(f.faults for f in report.findings)


def report_again(paper: str | None, scale: Scale | None, out: Path, *, command: str) -> bool:
    """Report on what is stored of one paper, or of all; True if no claim or figure failed.

    scale: by default small, and paper of kept results, which have no other.
    command: what would make such runs. Nothing makes kept results, so their page names this.
    """
    if is_results(out):
        if scale not in (None, "paper"):
            raise ValueError(
                f"{out} has results that are kept, which are of scale paper; leave out --scale "
                f"{scale}, or give a folder of runs"
            )
        scale = "paper"
        command = shlex.join(["rankscope", "report", str(out), *([paper] if paper else [])])
    scale = scale or "small"
    folder = report_folder(paper, scale, out)
    return rebuild(chosen(paper, scale), out, folder, command=command)


def rebuild(papers: tuple[Paper, ...], out: Path, folder: Path, *, command: str) -> bool:
    """Report on what is stored; True if no claim or figure failed."""
    there = tuple(filter(None, (_part_there(paper, out) for paper in papers)))
    if not there:
        raise ValueError(
            f"{out} has no runs of {' or '.join(paper.name for paper in papers)} at scale "
            f"{papers[0].scale}; rankscope reproduce makes them"
        )
    report = report_on(there, out, folder, command=command)
    show(report, folder, Console(stderr=True))
    return not any(findings.faults for findings in report.findings)


def chosen(paper: str | None, scale: Scale) -> tuple[Paper, ...]:
    """The paper of that name, or all."""
    names = paper_names() if paper is None else (paper,)
    return tuple(load_paper(name, scale) for name in names)


def report_folder(paper: str | None, scale: Scale, out: Path) -> Path:
    """Where the page, the verdicts and the figures of one paper, or of all together, are."""
    return out / (paper or "") / f"report-{scale}"


def pool(
    experiments: list[Experiment],
    out: Path,
    placement: Placement,
    *,
    seeds: tuple[int, ...] | None = None,
) -> list[StoredRun]:
    """The runs of several experiments with names that tell them apart, the longest first."""
    longest_first = sorted(experiments, key=_seconds_per_run, reverse=True)
    names = Counter(name for experiment in experiments for name in experiment.runs)
    return [
        replace(run, name=f"{experiment.name}/{run.name}") if names[run.name] > 1 else run
        for experiment in longest_first
        for run in stored_runs(placed(experiment, placement.place), out, seeds=seeds)
    ]


def _seconds_per_run(experiment: Experiment) -> float:
    runs = len(experiment.runs) * len(experiment.seeds)
    return (experiment.expected_seconds or 0.0) / max(runs, 1)


def _part_there(paper: Paper, out: Path) -> Paper | None:
    """None if nothing of it was run.

    Where each experiment is judged by itself, those of which nothing was run are left out.
    """
    kept = [
        experiment
        for experiment in paper.experiments
        if any(run.state == "whole" for run in stored_runs(experiment, out))
    ]
    if not kept:
        return None
    return paper if paper.joint else replace(paper, experiments=tuple(kept))


def show(report: Report, folder: Path, talk: Console) -> None:
    """Write the page and the verdicts; print the verdicts and, last, where the page is."""
    write_verdicts(report, folder)
    path = write_page(report, folder)
    for findings in report.findings:
        for line in findings.faults:
            say(talk, line)
    console = Console()
    if report.note:
        say(console, report.note)
    for paper in report.papers:
        for part in paper.parts:
            console.print(part.experiment or paper.paper.name, style="bold", highlight=False)
            console.print(verdict_table(part.findings.verdicts))
    say(console, f"Report: {path}")
