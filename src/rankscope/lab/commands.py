"""The commands `run`, `reproduce` and `report`: run what is missing, judge, draw, show.

<out>/<paper>/<experiment>/<scale>/   runs; of `run` also verdicts.json and figures/
<out>/<paper>/report-<scale>/         index.html, verdicts.json and figures/ of `reproduce PAPER`
<out>/report-<scale>/                 the same of all papers together
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from rankscope.lab.archive.archived_files import VERDICTS, is_archive
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Experiment, Scale, Study
from rankscope.lab.judging.available_runs import load_runs, stored_part
from rankscope.lab.judging.study import StudyReport, judge_study, verdicts_json, write_json
from rankscope.lab.judging.verdict import LEGEND
from rankscope.lab.reporting.page import Report, write_page
from rankscope.lab.reporting.run_page import write_run_page
from rankscope.lab.reporting.terminal import mark_tables, verdict_table
from rankscope.lab.running.placement import Placement, placed
from rankscope.lab.running.processes import Ended
from rankscope.lab.running.progress import Bars
from rankscope.lab.running.stored_run import StoredRun, stored_runs
from rankscope.store import is_run
from rankscope.store import open as open_run


def run_experiment(
    study: Study,
    out: Path,
    *,
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    placement: Placement | None = None,
    as_json: bool = False,
) -> bool:
    """Run what is missing of a study of one experiment, judge its claims and draw its figures.

    Return True if no run, claim or figure failed, whatever the verdicts are.
    seeds: run only these; verdicts use all seeds that are stored.
    jobs: runs at the same time; by default one per core, or five on a GPU.
    placement: where to run; by default in processes on this machine's CPU.
    """
    talk, placement = Console(stderr=True), placement or Placement()
    if placement.follow is not None:
        return placement.follow()
    (experiment,) = study.experiments
    check_folder(out)
    wanted = stored_runs(placed(experiment, placement.machine), out, seeds=seeds)
    ended = run_missing(wanted, placement, jobs=jobs, talk=talk)
    folder = experiment.folder(out)
    runs = load_runs(study.experiments, out, seeds=seeds or experiment.seeds)
    report = judge_study(study, runs, figures=folder / "figures")
    write_json(verdicts_json(report), folder / VERDICTS)
    if as_json:
        print(json.dumps(verdicts_json(report), indent=1, allow_nan=False))
    elif report.verdicts and not runs.empty:
        Console().print(verdict_table(report.verdicts))
    remarks = [remark for drawing in report.drawings for remark in drawing.remarks]
    nothing = ["No run is whole, so there are no verdicts and no figures."]
    for line in (*report.faults, *(nothing if runs.empty else remarks)):
        say(talk, line)
    for path in (
        folder / VERDICTS,
        *(path for drawing in report.drawings for path in drawing.files),
    ):
        say(talk, f"wrote {path}")
    name_failures(wanted, ended, talk)
    return not any(run.failure for run in ended) and not report.faults


def reproduce(
    studies: tuple[Study, ...],
    out: Path,
    folder: Path,
    *,
    command: str,
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    placement: Placement | None = None,
) -> bool:
    """Run what is missing of all studies, and write one report to `folder`.

    Return True if no run, claim or figure failed. Options as for `run_experiment`.
    """
    placement = placement or Placement()
    if placement.follow is not None:
        return placement.follow()
    succeeded = run_studies(studies, out, seeds=seeds, jobs=jobs, placement=placement)
    report = make_report(studies, out, folder, command=command, seeds=seeds, need_seeds=True)
    show(report, folder)
    return succeeded and not report.faults


def run_studies(
    studies: tuple[Study, ...],
    out: Path,
    *,
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    placement: Placement | None = None,
) -> bool:
    """Run what is missing of all studies in one pool; True if no run failed."""
    talk, placement = Console(stderr=True), placement or Placement()
    check_folder(out)
    experiments = [experiment for study in studies for experiment in study.experiments]
    wanted = [
        run
        for experiment in sorted(experiments, key=_seconds_per_run, reverse=True)
        for run in stored_runs(placed(experiment, placement.machine), out, seeds=seeds)
    ]
    ended = run_missing(wanted, placement, jobs=jobs, talk=talk)
    name_failures(wanted, ended, talk)
    say(talk, "Judging claims and drawing figures ...")
    return not any(run.failure for run in ended)


def report_again(paper: str | None, scale: Scale | None, out: Path, *, command: str) -> bool:
    """Write the report from the runs that are stored; True if no claim or figure failed.

    scale: by default small, and paper for an archive, which has no other.
    """
    archived = is_archive(out)
    if archived and scale not in (None, "paper"):
        raise ValueError(f"{out} is an archive of scale paper; leave out --scale {scale}")
    scale = scale or ("paper" if archived else "small")
    studies = [stored_part(study, out) for study in load_studies(scale, paper)]
    stored = tuple(study for study in studies if study.experiments)
    if not stored:
        own = [str(path) for path in sorted(out.iterdir()) if is_run(path)] if out.is_dir() else []
        hint = f"; for runs of your own: rankscope report {' '.join(own[:3])}" if own else ""
        raise ValueError(
            f"{out} has no runs of {paper or 'any paper'} at scale {scale}; "
            f"rankscope reproduce makes them{hint}"
        )
    folder = report_folder(paper, scale, out)
    report = make_report(stored, out, folder, command=command)
    show(report, folder)
    return not report.faults


def report_on_runs(paths: Sequence[Path], page: Path | None, *, command: str) -> Path:
    """Write the report on runs of one's own, by default beside the first, and print its path."""
    runs = {title: open_run(path) for title, path in zip(short_titles(paths), paths, strict=True)}
    for path, ds in zip(paths, runs.values(), strict=True):
        if not ds.sizes.get("step") or not ds.sizes.get("matrix"):
            raise ValueError(f"{path} has no snapshot with matrices yet; train on, then try again")
    first = paths[0].expanduser().resolve()
    name = "-and-".join(path.expanduser().resolve().name for path in paths)
    written = write_run_page(runs, page or first.with_name(f"{name}.html"), command=command)
    Console().print(f"Report: {written}", soft_wrap=True, highlight=False)
    return written


def short_titles(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of the paths, as many as tell them apart; of one path two."""
    parts = [path.expanduser().resolve().parts for path in paths]
    for count in range(2 if len(paths) == 1 else 1, max(map(len, parts)) + 1):
        titles = ["/".join(part[-count:]) for part in parts]
        if len(set(titles)) == len(titles):
            return titles
    raise ValueError(f"the same run is given twice; give different runs, got {paths[0]}")


def make_report(
    studies: tuple[Study, ...],
    out: Path,
    folder: Path,
    *,
    command: str,
    seeds: tuple[int, ...] | None = None,
    need_seeds: bool = False,
) -> Report:
    """Judge all claims and draw all figures, which are written to `folder`/figures.

    need_seeds: seeds that were asked for and are not there count as missing.
    """
    reports: list[StudyReport] = []
    for study in studies:
        needed = {s for e in study.experiments for s in seeds or e.seeds} if need_seeds else ()
        runs = load_runs(study.experiments, out, seeds=tuple(sorted(needed)))
        reports.append(judge_study(study, runs, figures=folder / "figures" / study.name))
    return Report(tuple(reports), command)


def show(report: Report, folder: Path) -> None:
    """Write the page and verdicts.json; print the marks and, last, where the page is."""
    write_json([verdicts_json(study) for study in report.studies], folder / VERDICTS)
    path = write_page(report, folder)
    console, talk = Console(), Console(stderr=True)
    for fault in report.faults:
        say(talk, fault)
    for study in report.studies:
        for heading, table in mark_tables(study.study, study.verdicts).items():
            console.print(heading, style="bold", highlight=False)
            console.print(table)
    say(console, LEGEND)
    say(console, f"Report: {path}")


def report_folder(paper: str | None, scale: Scale, out: Path) -> Path:
    """Return the folder of a report on one paper, or on all."""
    return out / (paper or "") / f"report-{scale}"


def check_folder(out: Path) -> None:
    """Refuse a folder in which nothing may be run."""
    if is_archive(out):
        raise ValueError(f"{out} is an archive; choose another --out")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; choose a folder with --out")


def run_missing(
    wanted: list[StoredRun], placement: Placement, *, jobs: int | None, talk: Console
) -> list[Ended]:
    """Execute the runs that are not whole, and say what happens to those that were begun."""
    states = [run.state for run in wanted]
    missing = [run for run, state in zip(wanted, states, strict=True) if state != "whole"]
    if whole := len(wanted) - len(missing):
        say(talk, f"{whole} of {len(wanted)} runs are there already.")
    begun: dict[tuple[str | None, bool], list[str]] = {}
    for run, state in zip(wanted, states, strict=True):
        if state == "changed":
            say(
                talk,
                f"{run.title} was declared differently before ({'; '.join(run.changes())}); it is "
                f"run again, and the earlier result moves to {run.free_replaced_path()}",
            )
        elif state == "interrupted":
            begun.setdefault((run.failure, run.checkpointed), []).append(run.title)
    for (failure, checkpointed), titles in begun.items():
        before = f"failed before ({failure})" if failure else "not finished"
        how = "continuing from the checkpoint" if checkpointed else "starting again"
        say(talk, f"{_first_and_count(titles)}: {before}; {how}")
    bars = Bars(talk, total=len(missing))
    if not missing:  # processes that wait for a run have to hear that there is none
        return placement.execute([], jobs=jobs, watcher=bars)
    try:
        with bars:
            return placement.execute(missing, jobs=jobs, watcher=bars)
    except KeyboardInterrupt:
        say(talk, "Stopped. Finished runs stay; the same command continues from here.")
        raise


def name_failures(wanted: Iterable[StoredRun], ended: Iterable[Ended], talk: Console) -> None:
    """Name the file that explains each failure, once for all runs that share the reason."""
    failures = {run.title: run.failure for run in ended if run.failure}
    runs_by_reason: dict[str, list[StoredRun]] = {}
    for run in wanted:
        if run.title in failures:
            runs_by_reason.setdefault(failures[run.title], []).append(run)
    for runs in runs_by_reason.values():
        titles = [run.title for run in runs]
        say(talk, f"failed: {_first_and_count(titles)}; see {runs[0].failure_file}")


def say(console: Console, text: str) -> None:
    """Print plain text without markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _first_and_count(titles: list[str]) -> str:
    return titles[0] + (f" and {len(titles) - 1} more" if len(titles) > 1 else "")


def _seconds_per_run(experiment: Experiment) -> float:
    runs = len(experiment.runs) * len(experiment.seeds)
    return (experiment.expected_seconds or 0.0) / max(runs, 1)
