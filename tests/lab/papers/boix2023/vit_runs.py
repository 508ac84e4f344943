"""Stored trainings of vision transformers made by hand: r equal values have stable rank r."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from rankscope.lab.experiment import Experiment
from rankscope.lab.training.training_run import TrainingRun

WIDTH, HEAD_WIDTH = 40, 16
STEPS_PER_EPOCH = 10
# Learning rates sum to 2.5e-3 after one epoch.
RATES = {"optimizer": {"class": "AdamW", "rate": 2.5e-4}, "rate": {"class": "Constant"}}
EPOCHS = {
    "snapshots": {"class": "Epochs", "steps_per_epoch": STEPS_PER_EPOCH, "first": 4},
    **RATES,
}


def trainings(experiment: Experiment) -> dict[str, TrainingRun]:
    """Return the runs that an experiment declares, by name."""
    return {key.name: run for key, run in experiment.runs.items()}


def flat(ranks: np.ndarray, *, length: int) -> np.ndarray:
    """(..., k): so many ones, then zeros, then NaN from `length` on."""
    i = np.arange(WIDTH)
    return np.where(i < length, 1.0 * (i < ranks[..., None]), np.nan)


def courses(*blocks: Sequence[int], heads: int = 2) -> np.ndarray:
    """(step, block, head) from the ranks of each block over time, the same for all heads."""
    return np.repeat(np.array(blocks).T[:, :, None], heads, axis=2)


def vit_run(
    kq: np.ndarray,
    vo: np.ndarray | None = None,
    *,
    start: int = HEAD_WIDTH,
    size: float = 1.0,
    loss: Sequence[float] | None = None,
    steps: Sequence[int] | None = None,
    declaration: dict[str, Any] = EPOCHS,
    **attrs: Any,
) -> xr.Dataset:
    """Return a run whose changes have the stable ranks `kq` and `vo` (step, block, head).

    vo: those of `kq` unless given. A rank of NaN gives values of NaN. Products at the start have
    stable rank `start`. Snapshots are one epoch apart, and a constant predictor's loss is 1.
    """
    count, blocks, heads = kq.shape
    if steps is None:
        steps = range(0, count * STEPS_PER_EPOCH, STEPS_PER_EPOCH)
    kinds = {"kq": kq, "vo": kq if vo is None else vo}
    ranks = np.stack(list(kinds.values()), axis=-1).reshape(count, -1)
    names = [
        f"blocks.{block}.attention.h{head}.{kind}"
        for block in range(blocks)
        for head in range(heads)
        for kind in kinds
    ]
    products = len(names)
    change = size * flat(ranks, length=2 * HEAD_WIDTH)
    change[np.isnan(ranks)] = np.nan
    initial = flat(np.full((count, products), start), length=HEAD_WIDTH)
    weights = flat(np.full((count, 1), WIDTH), length=WIDTH)
    losses = loss or [0.5, *[0.1] * (count - 1)]
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), weights),
            "product_singular_values": (("step", "product", "k"), initial),
            "product_change_singular_values": (("step", "product", "k"), change),
            "training_loss": ("step", np.array(losses)),
        },
        coords={
            "step": list(steps),
            "matrix": ["head.weight"],
            "m": ("matrix", [WIDTH]),
            "n": ("matrix", [WIDTH]),
            "part_of": ("matrix", [""]),
            "product": names,
            "product_kind": ("product", list(kinds) * (blocks * heads)),
            "product_m": ("product", [WIDTH] * products),
            "product_n": ("product", [WIDTH] * products),
            "product_r": ("product", [HEAD_WIDTH] * products),
        },
        attrs={
            "seed": 0,
            "constant_loss": 1.0,
            "diverged_at": None,
            "stopped_at": None,
            "declaration": declaration,
            **attrs,
        },
    )
