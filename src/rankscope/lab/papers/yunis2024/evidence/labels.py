"""Y8: middle layers of the MLP with true and with random labels."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.labels import RANDOM, TRUE, middle
from rankscope.lab.reporting.evidence import Row

LEARNT = 0.1  # training loss


def ranks(runs: Runs) -> Table:
    """MLP: rank with random labels less rank with true labels, once learnt and at the end."""
    rows: list[Row] = []
    by_labels = runs.of("mlp").by("labels")
    for seed, true in by_labels[TRUE].items():
        random = by_labels[RANDOM][seed]
        end = _ranks(random, -1) - _ranks(true, -1)
        learnt = _once_learnt(random, true)
        for name in end["matrix"].to_numpy():
            early = "never" if learnt is None else float(learnt.sel(matrix=name))
            rows.append((seed, str(name), early, float(end.sel(matrix=name))))
    columns = ("seed", "matrix", f"training loss < {LEARNT:g}", "end")
    return Table(columns, tuple(rows), "NER is lower with true labels by")


def learnt_at(ds: xr.Dataset) -> int | None:
    """Return the position of the first snapshot with a training loss below 0.1, or None."""
    learnt = np.flatnonzero(ds["training_loss"].to_numpy() < LEARNT)
    return int(learnt[0]) if len(learnt) else None


def _once_learnt(random: xr.Dataset, true: xr.Dataset) -> xr.DataArray | None:
    """(matrix): the difference when each has learnt its labels; None if one never does."""
    random_at, true_at = learnt_at(random), learnt_at(true)
    if random_at is None or true_at is None:
        return None
    return _ranks(random, random_at) - _ranks(true, true_at)


def _ranks(ds: xr.Dataset, position: int) -> xr.DataArray:
    """(matrix): NER of the middle layers at one snapshot."""
    ranks: xr.DataArray = middle(ds.isel(step=[position])).rankscope.normalized_effective_rank()
    return ranks.isel(step=0, drop=True)


def singular_values(runs: Runs) -> Table:
    """MLP: singular values of the middle layers at the start and at the end."""
    rows: list[Row] = []
    by_labels = runs.of("mlp").by("labels")
    for labels in (TRUE, RANDOM):
        for seed, ds in by_labels[labels].items():
            for S in middle(ds)["singular_values"].transpose("matrix", "step", "k"):
                start, end = S.values[0], S.values[-1]
                medians = float(np.median(start)), float(np.median(end))
                leading = map(float, (start[0], end[0], end[9], end[10]))
                rows.append((str(S["matrix"].item()), labels, seed, *medians, *leading))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("matrix", "labels", "seed", "median, start", "median, end")
    leading_columns = ("largest, start", "largest, end", "tenth, end", "eleventh, end")
    return Table((*columns, *leading_columns), tuple(rows), "singular values")
