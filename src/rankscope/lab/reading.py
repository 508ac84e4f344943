"""What claims and figures of yunis2024 read from stored trainings.

Runs are named `<network>/<variant>`: "vgg/decay-0.001", "mlp/true-labels".
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.lab.experiment import Results

# The decay of figures 1-3. The paper prints none for the UNet; AdamW's is 0 in its code.
BASE = {"vgg": 1e-4, "unet": 0.0, "lstm": 0.1, "lm": 0.1}

OVERLAPS = tuple(
    f"alignment{kind}{of}" for kind in ("", "_normalized") for of in ("", "_background")
)

LOSS_SHARE = 0.95  # of a constant predictor's loss
NORM_SHARE = 1e-2  # of the initial Frobenius norm
TINY = float(np.finfo(np.float32).tiny)  # below it fewer digits are left, and none in the end

# Seed -> Dataset. Said with Any, since a runtime type checker would look at the first one, and one
# that is missing raises when it is looked at.
Seeds = Mapping[int, Any]


def network(name: str) -> str:
    """ "vgg" of "vgg/decay-0.001"."""
    return name.partition("/")[0]


def variant(name: str) -> str:
    """ "decay-0.001" of "vgg/decay-0.001"."""
    return name.partition("/")[2]


def decays(results: Results, of: str) -> dict[float, Seeds]:
    """The runs of one network by the paper's decay they stand for, ascending."""
    found = {
        float(variant(name).removeprefix("decay-")): seeds
        for name, seeds in results.items()
        if network(name) == of and variant(name).startswith("decay-")
    }
    return dict(sorted(found.items()))


def base_decay(results: Results, of: str) -> float:
    """The decay of figures 1-3, or the nearest there is."""
    return min(decays(results, of), key=lambda decay: abs(decay - BASE[of]))


def base(results: Results, of: str) -> Seeds:
    """The runs at `base_decay`."""
    return decays(results, of)[base_decay(results, of)]


def whole(ds: xr.Dataset) -> xr.Dataset:
    """Only matrices that are no part of another."""
    return ds.isel(matrix=np.flatnonzero(ds["part_of"].to_numpy() == ""))


def neighbours(ds: xr.Dataset) -> xr.Dataset:
    """Without the pairs of other taps, which only the claim on filters looks at."""
    return ds.isel(pair=np.flatnonzero(ds["pair_kind"].to_numpy() != "tap"))


def overlaps(ds: xr.Dataset) -> xr.Dataset:
    """The overlaps of pairs and their backgrounds; NaN while one of the two matrices is zero.

    The singular vectors of a zero matrix are the solver's choice, and those of one whose numbers
    float32 no longer holds to its usual precision are made of rounding.
    """
    found = ds[[name for name in OVERLAPS if name in ds]]
    zero = ds["singular_values"].isel(k=0).transpose("step", "matrix").to_numpy() < TINY
    zero_at = dict(zip(ds["matrix"].to_numpy(), zero.T, strict=True))
    never = np.zeros(ds.sizes["step"], bool)
    ends = zip(ds["earlier"].to_numpy(), ds["later"].to_numpy(), strict=True)
    dead = [zero_at.get(u, never) | zero_at.get(v, never) for u, v in ends]  # (pair, step)
    if not np.any(dead):
        return found
    return found.where(~xr.DataArray(np.array(dead), dims=("pair", "step")))


def collapsed(ds: xr.Dataset) -> str:
    """Why the run is left out of trends; "" if it is not.

    A collapsed network has a flat spectrum and reads as high rank. The rule: a final training
    loss of at least 0.95 of a constant predictor's, or a median |W|_F, over whole matrices, below
    1e-2 of the initial median. Runs that diverged are left out too, and named as such.
    """
    if why := diverged(ds):
        return why
    loss, constant = float(ds["training_loss"][-1]), ds.attrs["constant_loss"]
    if not loss < LOSS_SHARE * constant:
        return f"training loss {loss:.3g}, a constant predictor's is {constant:.3g}"
    ends = ds[["singular_values"]].isel(step=[0, -1])
    first, last = whole(ends).rankscope.frobenius_norm().median("matrix").to_numpy().tolist()
    return "" if last >= NORM_SHARE * first else f"median norm fell from {first:.2g} to {last:.2g}"


def diverged(ds: xr.Dataset) -> str:
    """When the loss stopped to be finite; "" if it never did."""
    if ds.attrs.get("diverged_at") is not None:
        return f"diverged at step {ds.attrs['diverged_at']}"
    loss = float(ds["training_loss"][-1])
    return "" if math.isfinite(loss) else f"diverged: training loss {loss} at the end"
