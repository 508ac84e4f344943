"""The command `rankscope run`: what is missing is run, claims are judged, figures drawn."""

import json
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from rankscope.lab.execution import Ended
from rankscope.lab.experiment import Experiment
from rankscope.lab.findings import Findings, find, verdicts_json
from rankscope.lab.kept_run import is_results
from rankscope.lab.placement import Placement, placed
from rankscope.lab.progress import Bars
from rankscope.lab.stored_run import StoredRun, stored_runs
from rankscope.lab.tables import evidence, verdict_table


def conduct(
    experiment: Experiment,
    out: Path,
    *,
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    placement: Placement | None = None,
    as_json: bool = False,
) -> bool:
    """Run, judge, draw; True if no run, claim or figure failed, whatever the verdicts are.

    seeds: run only these; verdicts are made of all that is there.
    jobs: runs at the same time, by default one per core, or five on a GPU.
    placement: where, by default in processes on this machine's CPU.
    """
    talk, placement = Console(stderr=True), placement or Placement()
    if placement.follow is not None:
        return placement.follow()
    check_folder(out)
    wanted = stored_runs(placed(experiment, placement.place), out, seeds=seeds)
    ended = run_missing(wanted, placement, jobs=jobs, talk=talk)
    findings = find(experiment, out, seeds=seeds or experiment.seeds)
    if as_json:
        content = verdicts_json(experiment.name, experiment.scale, findings.verdicts)
        print(json.dumps(content, indent=1, allow_nan=False))
    elif not findings.empty:
        show_verdicts(findings)
    for line in (*findings.faults, *(() if findings.empty else findings.remarks)):
        say(talk, line)
    if findings.empty:
        say(talk, "No run is whole, so no figure is drawn and every claim is undecided.")
    for path in (experiment.folder(out) / "verdicts.json", *findings.figures):
        say(talk, f"wrote {path}")
    name_failures(wanted, ended, talk)
    return not any(run.failure for run in ended) and not findings.faults


def check_folder(out: Path) -> None:
    """Refuse a folder in which nothing may be run."""
    if is_results(out):
        raise ValueError(f"{out} is where results are kept; choose another --out")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; choose a folder with --out")


def run_missing(
    wanted: list[StoredRun], placement: Placement, *, jobs: int | None, talk: Console
) -> list[Ended]:
    """Execute those of `wanted` that are not there whole, and say what happens to what is."""
    states = [run.state for run in wanted]
    missing = [run for run, state in zip(wanted, states, strict=True) if state != "whole"]
    if kept := len(wanted) - len(missing):
        say(talk, f"{kept} of {len(wanted)} runs are there already.")
    begun: dict[tuple[str | None, bool], list[str]] = {}
    for run, state in zip(wanted, states, strict=True):
        if state == "changed":
            say(
                talk,
                f"{run.title} was declared otherwise before ({'; '.join(run.changes())}); it is "
                f"run again, and the earlier result is kept as {run.aside()}",
            )
        elif state == "interrupted":
            begun.setdefault((run.failure, run.checkpointed), []).append(run.title)
    for (failure, checkpointed), titles in begun.items():
        was, it = ("was", "it") if len(titles) == 1 else ("were", "each")
        before = f"failed before ({failure})" if failure else f"{was} begun, not finished"
        how = "goes on from its checkpoint" if checkpointed else "begins anew"
        say(talk, f"{_counted(titles)} {before}; {it} {how}")
    bars = Bars(talk, total=len(missing))
    if not missing:  # processes that wait for a run are to hear that there is none
        return placement.execute([], jobs=jobs, watcher=bars)
    try:
        with bars:
            return placement.execute(missing, jobs=jobs, watcher=bars)
    except KeyboardInterrupt:
        say(talk, "Stopped. Finished runs stay; the same command goes on from here.")
        raise


def name_failures(wanted: Iterable[StoredRun], ended: Iterable[Ended], talk: Console) -> None:
    """Where to read more of each reason, once for all runs that failed for it."""
    failed = {run.title: run.failure for run in ended if run.failure}
    alike: dict[str, list[StoredRun]] = {}
    for run in wanted:
        if run.title in failed:
            alike.setdefault(failed[run.title], []).append(run)
    for runs in alike.values():
        titles = [run.title for run in runs]
        say(talk, f"failed: {_counted(titles)}; see {runs[0].failure_file}")


def _counted(titles: list[str]) -> str:
    return titles[0] + (f" and {len(titles) - 1} more" if len(titles) > 1 else "")


def show_verdicts(findings: Findings) -> None:
    """The table to stdout, and under it what stands behind each verdict."""
    if findings.verdicts:
        console = Console()
        console.print(verdict_table(findings.verdicts))
        for verdict in findings.verdicts:
            for each in evidence(verdict):
                console.print(each, highlight=False)


def say(talk: Console, text: str) -> None:
    talk.print(text, markup=False, highlight=False, soft_wrap=True)
