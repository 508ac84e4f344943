"""B5: how many perturbed runs come back, at both alphas, over all tasks."""

import numpy as np

from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.boix2023.claims.assumptions import BOUND, shares, undisturbed
from rankscope.lab.papers.yunis2024.evidence.runs import Row, kept
from rankscope.lab.papers.yunis2024.runs import variant


def trials() -> Table:
    """Trials back at 5% or less after 1000 epochs, and those that nothing else disturbs."""
    rows = tuple(_row(alpha) for alpha in ("1e-32", "1e-300"))
    columns = ("alpha", "trials", "back", "undisturbed", "of these back", "most left of these")
    return Table(columns, rows, "over all tasks and seeds")


def _row(alpha: str) -> Row:
    found = kept("boix2023/assumptions").items()
    seeds = [of_seed for name, of_seed in found if variant(name) == f"alpha-{alpha}"]
    runs = [ds for of_seed in seeds for ds in of_seed.values()]
    left = np.concatenate([shares(ds).isel(time=-1).to_numpy() for ds in runs])
    alone = np.concatenate([undisturbed(ds) for ds in runs])
    back = left <= BOUND
    worst = float(left[alone].max()) if alone.any() else None
    return alpha, len(left), int(back.sum()), int(alone.sum()), int(back[alone].sum()), worst
