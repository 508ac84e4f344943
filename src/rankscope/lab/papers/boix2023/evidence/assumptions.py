"""B5: how many perturbed trials come back, by alpha."""

import numpy as np

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.boix2023.claims.assumptions import (
    BOUND,
    PERTURBED_RUNS,
    shares,
    undisturbed,
)
from rankscope.lab.reporting.evidence import Row

LOG10_ALPHAS = (-32.0, -300.0)


def trials(runs: Runs) -> Table:
    """Trials back at 5% or less after 1000 epochs, and those that nothing else disturbs."""
    rows = tuple(_row(runs, log10_alpha) for log10_alpha in LOG10_ALPHAS)
    columns = ("alpha", "trials", "back", "undisturbed", "of these back", "most left of these")
    return Table(columns, rows, "over all tasks and seeds")


def _row(runs: Runs, log10_alpha: float) -> Row:
    keys = PERTURBED_RUNS(list(runs))
    at_alpha = [key for key in keys if key.variant["log10_alpha"] == log10_alpha]
    datasets = [ds for key in at_alpha for ds in runs[key].values()]
    left = np.concatenate([shares(ds).isel(time=-1).to_numpy() for ds in datasets])
    alone = np.concatenate([undisturbed(ds) for ds in datasets])
    back = left <= BOUND
    counts = len(left), int(back.sum()), int(alone.sum()), int(back[alone].sum())
    return f"1e{log10_alpha:g}", *counts, float(left[alone].max()) if alone.any() else None
