"""Cost of each experiment, beside the authors' pipeline where that was measured."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.official.evaluation import read_cost
from rankscope.lab.reporting.evidence import Row
from rankscope.lab.reporting.numbers import duration

MEASURED = "yunis2024/vgg"  # the only experiment of theirs that was timed


def cost_tables(runs: Runs, archive: Path) -> tuple[Table, ...]:
    """Return time by experiment."""
    by_experiment: dict[str, list[xr.Dataset]] = {}
    for key in runs:
        by_experiment.setdefault(key.experiment, []).extend(runs[key].values())
    theirs = seconds_of_theirs(read_cost(archive))
    columns = (
        *("experiment", "runs", "snapshots a run", "longest run", "machine time a run"),
        *("authors' pipeline, a run", "ratio"),
    )
    rows = tuple(_row(name, datasets, theirs) for name, datasets in by_experiment.items())
    return (Table(columns, rows, "training and measuring together"),)


def _row(name: str, datasets: list[xr.Dataset], theirs: float) -> Row:
    seconds = busy_seconds(map(interval, datasets)) / len(datasets)
    measured = name == MEASURED
    return (
        name,
        len(datasets),
        max(ds.sizes["step"] for ds in datasets),
        duration(max(ds.attrs["wall_seconds"] for ds in datasets)),
        duration(seconds),
        duration(theirs) if measured else "not measured",
        f"{theirs / seconds:.0f}" if measured else "-",
    )


def seconds_of_theirs(cost: dict[str, float]) -> float:
    """Return what a VGG takes in the authors' pipeline: each epoch is trained and evaluated."""
    return cost["epochs"] * (cost["seconds_per_epoch"] + cost["seconds_per_checkpoint"])


def interval(ds: xr.Dataset) -> tuple[float, float]:
    """Return when a run began and ended."""
    began = datetime.fromisoformat(ds.attrs["started"]).timestamp()
    return began, began + ds.attrs["wall_seconds"]


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of the runs was going on; runs side by side count once."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
