"""Y8: what true and random labels do to the middle layers of the MLP."""

import numpy as np
import xarray as xr

from findings.runs import Row, kept
from rankscope.lab.claims.labels import RANDOM, TRUE, middle
from rankscope.lab.reading import variant
from rankscope.lab.verdict import Table

LEARNT = 0.1  # training loss
EXPERIMENT = "yunis2024/mlp"


def ranks() -> Table:
    """NER of random labels less that of true labels, once learnt and at the end."""
    rows: list[Row] = []
    runs = kept(EXPERIMENT)
    for seed, true in runs[TRUE].items():
        random = runs[RANDOM][seed]
        end = _ranks(random, -1) - _ranks(true, -1)
        learnt = _once_learnt(random, true)
        for name in end["matrix"].to_numpy():
            early = "never" if learnt is None else float(learnt.sel(matrix=name))
            rows.append((seed, str(name), early, float(end.sel(matrix=name))))
    columns = ("seed", "matrix", f"training loss < {LEARNT:g}", "end")
    return Table(columns, tuple(rows), "true labels lower by")


def learnt_at(ds: xr.Dataset) -> int | None:
    """Position of the first snapshot with so low a training loss; None if there is none."""
    learnt = np.flatnonzero(ds["training_loss"].to_numpy() < LEARNT)
    return int(learnt[0]) if len(learnt) else None


def _once_learnt(random: xr.Dataset, true: xr.Dataset) -> xr.DataArray | None:
    """(matrix): how far true labels are lower when each has been learnt; None if one never is."""
    of_random, of_true = learnt_at(random), learnt_at(true)
    if of_random is None or of_true is None:
        return None
    return _ranks(random, of_random) - _ranks(true, of_true)


def _ranks(ds: xr.Dataset, position: int) -> xr.DataArray:
    """(matrix): NER of the middle layers, free of the step at which it is read."""
    found: xr.DataArray = middle(ds.isel(step=[position])).rankscope.normalized_effective_rank()
    return found.isel(step=0, drop=True)


def singular_values() -> Table:
    """Singular values of the middle layers, at the start and at the end."""
    rows: list[Row] = []
    for name in (TRUE, RANDOM):
        for seed, ds in kept(EXPERIMENT)[name].items():
            for S in middle(ds)["singular_values"].transpose("matrix", "step", "k"):
                start, end = S.values[0], S.values[-1]
                medians = (float(np.median(each)) for each in (start, end))
                leading = (float(value) for value in (start[0], end[0], end[9], end[10]))
                rows.append((str(S["matrix"].item()), variant(name), seed, *medians, *leading))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("matrix", "run", "seed", "median, start", "median, end")
    leading_columns = ("largest, start", "largest, end", "tenth, end", "eleventh, end")
    return Table((*columns, *leading_columns), tuple(rows), "singular values")
