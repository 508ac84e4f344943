"""What claims and figures of yunis2024 read from stored trainings.

Runs are named `<network>/<variant>`: "vgg/decay-0.001", "mlp/true-labels".
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.lab.experiment import Results

# The decay of figures 1-3. The paper prints none for the UNet; AdamW's is 0 in its code.
BASE = {"vgg": 1e-4, "unet": 0.0, "lstm": 0.1, "lm": 0.1}

LOSS_SHARE = 0.95  # of a constant predictor's loss
NORM_SHARE = 1e-2  # of the initial Frobenius norm

# Seed -> Dataset. Said with Any, since a runtime type checker would look at the first one, and one
# that is missing raises when it is looked at.
Seeds = Mapping[int, Any]


def network(name: str) -> str:
    """ "vgg" of "vgg/decay-0.001"."""
    return name.partition("/")[0]


def variant(name: str) -> str:
    """ "decay-0.001" of "vgg/decay-0.001"."""
    return name.partition("/")[2]


def networks(results: Results) -> list[str]:
    """The networks there are, in the order of their runs."""
    return list(dict.fromkeys(network(name) for name in results))


def decays(results: Results, of: str) -> dict[float, Seeds]:
    """The runs of one network by the paper's decay they stand for, ascending."""
    found = {
        float(variant(name).removeprefix("decay-")): seeds
        for name, seeds in results.items()
        if network(name) == of and variant(name).startswith("decay-")
    }
    return dict(sorted(found.items()))


def base(results: Results, of: str) -> Seeds:
    """The runs at the decay of figures 1-3, or at the nearest there is."""
    found = decays(results, of)
    nearest = min(found, key=lambda decay: abs(decay - BASE[of]))
    return found[nearest]


def whole(ds: xr.Dataset) -> xr.Dataset:
    """Only matrices that are no part of another."""
    return ds.isel(matrix=np.flatnonzero(ds["part_of"].to_numpy() == ""))


def neighbours(ds: xr.Dataset) -> xr.Dataset:
    """Without the pairs of other taps, which only the claim on filters looks at."""
    return ds.isel(pair=np.flatnonzero(ds["pair_kind"].to_numpy() != "tap"))


def collapsed(ds: xr.Dataset) -> str:
    """Why the run is left out of trends; "" if it is not.

    A collapsed network has a flat spectrum and reads as high rank. The rule: a final training
    loss of at least 0.95 of a constant predictor's, or a median |W|_F below 1e-2 of the initial.
    """
    if ds.attrs.get("diverged_at") is not None:
        return f"diverged at step {ds.attrs['diverged_at']}"
    loss, constant = float(ds["training_loss"][-1]), ds.attrs["constant_loss"]
    if not loss < LOSS_SHARE * constant:
        return f"training loss {loss:.3g}, a constant predictor's is {constant:.3g}"
    ends = ds[["singular_values"]].isel(step=[0, -1])
    norms = whole(ends).rankscope.frobenius_norm()
    share = float((norms[-1] / norms[0]).median())
    return f"norms fell to {share:.1e} of the initial" if not share >= NORM_SHARE else ""
