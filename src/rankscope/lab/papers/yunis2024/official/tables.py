"""Tables of the authors' evaluation beside our VGGs, at equal optimizer steps."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.official.evaluation import (
    LAYERS,
    Official,
    nearest_snapshot,
    our_runs,
    read_official,
)
from rankscope.lab.reporting.evidence import Row

Read = Callable[[xr.Dataset], float]

# Their losses, and ours.
LOSSES: dict[str, tuple[str, Read]] = {
    "training loss": ("train/loss", lambda ds: float(ds["training_loss"][0])),
    "training loss of the top half": ("train/pruned_bot_loss", lambda ds: float(ds["top_loss"][0])),
    "training loss of the bottom half": (
        "train/pruned_top_loss",
        lambda ds: float(ds["bottom_loss"][0]),
    ),
    "held-out loss": ("val/loss", lambda ds: float(ds["validation_loss"][0])),
    "held-out error": ("val/err", lambda ds: 1 - float(ds["validation_accuracy"][0])),
}


def official_tables(runs: Runs, archive: Path) -> tuple[Table, ...]:
    """Return ranks by matrix, alignment by pair, and losses: theirs and ours."""
    official, seeds = read_official(archive), our_runs(runs)
    ours = [[nearest_snapshot(ds, step) for ds in seeds.values()] for step in official.steps]
    return (
        Table(
            ("matrix", *_columns(official, ours), "difference"),
            tuple(_rank_rows(official, ours)),
            "normalised effective rank",
        ),
        Table(
            ("pair", "of", *_columns(official, ours)),
            tuple(_pair_rows(official, ours)),
            "raw overlaps at the centre tap: a, the mean of the first ten, and the background",
        ),
        Table(
            ("", *_columns(official, ours)), tuple(_loss_rows(official, ours)), "losses and errors"
        ),
    )


def _columns(official: Official, ours: Sequence[Sequence[xr.Dataset]]) -> Iterable[str]:
    for step, snapshots in zip(official.steps, ours, strict=True):
        yield f"theirs, step {step}"
        yield f"ours, step {int(snapshots[0]['step'][0])}"


def _rank_rows(official: Official, ours: Sequence[Sequence[xr.Dataset]]) -> Iterable[Row]:
    for matrix in LAYERS:
        theirs, values = official.rank(matrix), [rank_of(at_step, matrix) for at_step in ours]
        gaps = [
            float(np.mean(mine)) - float(other) for mine, other in zip(values, theirs, strict=True)
        ]
        yield (matrix, *_side_by_side(theirs, values), f"{max(gaps, key=abs):+.3f}")


def _pair_rows(official: Official, ours: Sequence[Sequence[xr.Dataset]]) -> Iterable[Row]:
    for pair in official.pairs:
        name = " > ".join(pair)
        a = [[alignment_of(ds, name) for ds in at_step] for at_step in ours]
        levels = [[background_of(ds, name) for ds in at_step] for at_step in ours]
        yield (name, "a", *_side_by_side(official.alignment(pair), a))
        yield (name, "background", *_side_by_side(official.background(pair), levels))


def _loss_rows(official: Official, ours: Sequence[Sequence[xr.Dataset]]) -> Iterable[Row]:
    for title, (key, read) in LOSSES.items():
        values = [[read(ds) for ds in at_step] for at_step in ours]
        yield (title, *_side_by_side(official.arrays[key], values))


def rank_of(snapshots: Iterable[xr.Dataset], matrix: str) -> list[float]:
    """Return the normalised effective rank of a matrix in each snapshot."""
    return [
        float(ds.sel(matrix=[matrix]).rankscope.normalized_effective_rank()[0, 0])
        for ds in snapshots
    ]


def alignment_of(ds: xr.Dataset, pair: str) -> float:
    """Return a of one pair in a snapshot."""
    return float(ds.sel(pair=[pair]).rankscope.mean_alignment()[0, 0])


def background_of(ds: xr.Dataset, pair: str) -> float:
    """Return the background of one pair in a snapshot."""
    return float(ds["alignment_background"].sel(pair=pair)[0])


def _side_by_side(theirs: np.ndarray, ours: Iterable[Sequence[float]]) -> Iterable[str]:
    """Yield their number and ours, mean and range over seeds, for each evaluation."""
    for number, values in zip(theirs, ours, strict=True):
        yield f"{number:.3f}"
        yield f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
