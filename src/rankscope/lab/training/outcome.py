"""Whether a training collapsed or diverged."""

import math

import numpy as np
import xarray as xr

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)

LOSS_SHARE = 0.95  # of a constant predictor's loss
NORM_SHARE = 1e-2  # of the initial Frobenius norm


def collapsed(ds: xr.Dataset) -> str:
    """Return why a run is left out of trends, or "".

    A collapsed network has a flat spectrum and reads as high rank. A run has collapsed if its final
    training loss is at least 0.95 of a constant predictor's, or if the median |W|_F over whole
    matrices is below 1e-2 of the initial one. Runs that diverged are left out too.
    """
    if reason := diverged(ds):
        return reason
    loss, constant = float(ds["training_loss"][-1]), ds.attrs["constant_loss"]
    if not loss < LOSS_SHARE * constant:
        return f"training loss {loss:.3g}, a constant predictor's is {constant:.3g}"
    ends = ds[["singular_values"]].isel(step=[0, -1])
    ends = ends.isel(matrix=np.flatnonzero(ends["part_of"].to_numpy() == ""))
    first, last = ends.rankscope.frobenius_norm().median("matrix").to_numpy().tolist()
    return "" if last >= NORM_SHARE * first else f"median norm fell from {first:.2g} to {last:.2g}"


def diverged(ds: xr.Dataset) -> str:
    """Return when the loss ceased to be finite, or ""."""
    if ds.attrs.get("diverged_at") is not None:
        return f"diverged at step {ds.attrs['diverged_at']}"
    loss = float(ds["training_loss"][-1])
    return "" if math.isfinite(loss) else f"diverged: training loss {loss} at the end"
