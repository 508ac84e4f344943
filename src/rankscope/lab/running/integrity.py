"""Check of stored runs with the files beside them: reference weights and checkpoints."""

from pathlib import Path

from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.store.check import Report, check_run, stored_runs
from rankscope.store.source import Folder
from rankscope.store.stored_run import StoredRun
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
            weights = InitialWeights(run).load()
            if weights is None and report.chunks and _promises_weights(run):
                report.damage.append(
                    "it has lost reference.safetensors, the weights from which its changes are "
                    "measured; it can be read, and not resumed"
                )
        except ValueError as damage:
            report.damage.append(str(damage))
        reason = Checkpoint(run).damage()
        if reason is not None:
            report.damage.append(f"the checkpoint beside it is damaged: {reason}")
    return report


def _promises_weights(run: Path) -> bool:
    """Tell whether changes are measured from the first snapshot, and that was taken."""
    root = StoredRun.at(Folder(run)).root
    steps = root.arrays.get("step")
    return root.attrs.get("reference") == "init" and steps is not None and steps.shape[0] > 0
