"""Check of stored runs with the files beside them: reference weights and checkpoints."""

from pathlib import Path

from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.store.check import Report, check_run, stored_runs
from rankscope.tracker.reference import InitialWeights


def check_runs(path: Path) -> list[Report]:
    """Check each run at and below `path`; ValueError if there is none."""
    reports = [_checked(run) for run in stored_runs(path)] if path.exists() else []
    if not reports:
        raise ValueError(f"{path} holds no run; give a run, an archive or a folder of runs")
    return reports


def _checked(run: Path) -> Report:
    report = check_run(run)
    if run.is_dir():
        try:
            InitialWeights(run).load()
        except ValueError as damage:
            report.damage.append(str(damage))
        if damage := Checkpoint(run).damage():
            report.damage.append(f"the checkpoint beside it is damaged: {damage}")
    return report
