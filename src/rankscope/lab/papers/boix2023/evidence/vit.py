"""B7, B9-first: stable ranks of the changes of products in vision transformers on CIFAR-10."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.boix2023.claims.low_rank import LOWER
from rankscope.lab.papers.boix2023.runs import by_network, change_ranks, initial_ranks, times
from rankscope.lab.reporting import numbers
from rankscope.lab.reporting.evidence import Row
from rankscope.lab.running.run_key import RunKey

VIT = RunKey("vit", experiment="boix2023/vit-cifar10")
EPOCHS = (10, 13, 16, 20, 26, 32, 100, 500)


def by_init_scale(runs: Runs) -> dict[float, xr.Dataset]:
    """Return the first seed at each initial scale, from the largest scale to the smallest."""
    seeds = by_network(runs)[VIT].by("scale")
    return {init_scale: seeds[init_scale][min(seeds[init_scale])] for init_scale in reversed(seeds)}


def at_epoch(ds: xr.Dataset, epoch: int) -> int:
    """Return the position of the snapshot nearest to an epoch."""
    return int(np.abs(times(ds) - epoch).argmin())


def span(values: np.ndarray) -> str:
    """Return "1.1 to 1.3", one number if both look the same, "-" without values."""
    return numbers.span((float(values.min()), float(values.max())) if values.size else None)


def early_ranks(runs: Runs) -> Table:
    """Stable rank of the change of K-Q by block: early, and at the end."""
    vits = by_init_scale(runs)
    ranks = [change_ranks(ds, "kq").mean("head").to_numpy() for ds in vits.values()]
    thirds = [at_epoch(ds, 3) for ds in vits.values()]
    rows = (
        ("first snapshot", *(span(course[1]) for course in ranks)),
        ("epoch 3", *(span(course[at]) for course, at in zip(ranks, thirds, strict=True))),
        ("end of training", *(span(course[-1]) for course in ranks)),
    )
    columns = ("rank by block", *(f"scale {init_scale:g}" for init_scale in vits))
    title = f"mean over heads; the first snapshot is at step {int(vits[1.0]['step'][1])}"
    return Table(columns, rows, title)


def exceptions_over_time(runs: Runs) -> Table:
    """Heads whose V-O is above a quarter at initial scale 1, over time."""
    ds = by_init_scale(runs)[1.0]
    epochs, initial = times(ds), initial_ranks(ds, "vo").to_numpy()
    course = change_ranks(ds, "vo").to_numpy() / initial  # (step, block, head)
    above = course > LOWER
    as_at_end = (above == above[-1]).all((1, 2))
    rows: list[Row] = []
    for position in (at_epoch(ds, epoch) for epoch in EPOCHS):
        blocks = ", ".join(map(str, np.flatnonzero(above[position].any(-1)) + 1)) or "-"
        heads = int(above[position].sum()), blocks, bool(as_at_end[position])
        reached = (float(ds[name][position]) for name in ("training_loss", "validation_accuracy"))
        rows.append((f"{epochs[position]:g}", *heads, float(course[position].max()), *reached))
    columns = ("epoch", "heads above", "blocks", "as at the end", "largest")
    title = f"above {LOWER:g} at the end: {span(course[-1][above[-1]])}"
    return Table((*columns, "training loss", "accuracy"), tuple(rows), title)
