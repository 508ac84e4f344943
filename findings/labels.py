"""Y8: what true and random labels do to the middle layers of the MLP."""

import numpy as np
import xarray as xr

from findings.runs import RESULTS, Row, run, seeds_in
from rankscope.lab.claims.labels import RANDOM, TRUE, middle
from rankscope.lab.reading import variant
from rankscope.lab.verdict import Table

LEARNT = 0.1  # training loss
FOLDER = "yunis2024/mlp"


def ranks() -> Table:
    """NER of random labels less that of true labels, once learnt and at the end."""
    rows: list[Row] = []
    for seed in _seeds():
        random, true = (_learnt_and_end(run(f"{FOLDER}/{name}", seed)) for name in (RANDOM, TRUE))
        lower = random - true
        for name in lower["matrix"].to_numpy():
            rows.append((seed, str(name), *map(float, lower.sel(matrix=name))))
    columns = ("seed", "matrix", f"training loss < {LEARNT:g}", "end")
    return Table(columns, tuple(rows), "true labels lower by")


def _learnt_and_end(ds: xr.Dataset) -> xr.DataArray:
    """(2, matrix): NER of the middle layers, free of the steps at which it is read."""
    learnt = int(np.flatnonzero(ds["training_loss"].to_numpy() < LEARNT)[0])
    found: xr.DataArray = middle(ds.isel(step=[learnt, -1])).rankscope.normalized_effective_rank()
    return found.drop_vars("step")


def singular_values() -> Table:
    """Singular values of the middle layers, at the start and at the end."""
    rows: list[Row] = []
    for name in (TRUE, RANDOM):
        for seed in _seeds():
            layers = middle(run(f"{FOLDER}/{name}", seed))["singular_values"]
            for S in layers.transpose("matrix", "step", "k"):
                start, end = S.values[0], S.values[-1]
                medians = (float(np.median(each)) for each in (start, end))
                leading = (float(value) for value in (start[0], end[0], end[9], end[10]))
                rows.append((str(S["matrix"].item()), variant(name), seed, *medians, *leading))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("matrix", "run", "seed", "median, start", "median, end")
    leading_columns = ("largest, start", "largest, end", "tenth, end", "eleventh, end")
    return Table((*columns, *leading_columns), tuple(rows), "singular values")


def _seeds() -> list[int]:
    return seeds_in(RESULTS / FOLDER / TRUE)
