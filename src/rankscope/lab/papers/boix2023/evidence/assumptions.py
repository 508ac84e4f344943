"""B5: how many perturbed trials end near the run without the perturbation, by alpha."""

import numpy as np

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.boix2023.claims.assumptions import (
    BOUND,
    PERTURBED_RUNS,
    relative_distances,
    undisturbed,
)
from rankscope.lab.reporting.evidence import Row

LOG10_ALPHAS = (-32.0, -300.0)


def trials(runs: Runs) -> Table:
    """Trials within 5% of the unperturbed run after 1000 epochs, and the undisturbed ones."""
    rows = tuple(_row(runs, log10_alpha) for log10_alpha in LOG10_ALPHAS)
    columns = ("alpha", "trials", "near", "undisturbed", "of these near", "farthest of these")
    return Table(columns, rows, "over all tasks and seeds")


def _row(runs: Runs, log10_alpha: float) -> Row:
    keys = PERTURBED_RUNS(list(runs))
    at_alpha = [key for key in keys if key.variant["log10_alpha"] == log10_alpha]
    datasets = [ds for key in at_alpha for ds in runs[key].values()]
    at_end = [relative_distances(ds).isel(time=-1).to_numpy() for ds in datasets]
    distances = np.concatenate(at_end)
    alone = np.concatenate([undisturbed(ds) for ds in datasets])
    near = distances <= BOUND
    counts = len(near), int(near.sum()), int(alone.sum()), int(near[alone].sum())
    return f"1e{log10_alpha:g}", *counts, float(distances[alone].max()) if alone.any() else None
