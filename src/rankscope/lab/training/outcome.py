"""Rules for stored trainings that collapsed or diverged."""

import math

import xarray as xr

LOSS_SHARE = 0.95  # of a constant predictor's loss
NORM_SHARE = 1e-2  # of the initial Frobenius norm


def collapsed(ds: xr.Dataset) -> str:
    """Return why a run is left out of trends, or "" if it is not.

    A collapsed network has a flat spectrum, which reads as high rank. A run is collapsed if its
    final training loss is at least 0.95 of a constant predictor's, or if the median |W|_F over
    whole matrices falls below 1e-2 of its initial value. A run that diverged is left out too.
    """
    if reason := diverged(ds):
        return reason
    loss, constant = float(ds["training_loss"][-1]), ds.attrs["constant_loss"]
    if not loss < LOSS_SHARE * constant:
        return f"training loss {loss:.3g}, a constant predictor's is {constant:.3g}"
    ends = ds[["singular_values"]].isel(step=[0, -1]).rankscope.whole()
    first, last = ends.rankscope.frobenius_norm().median("matrix").to_numpy().tolist()
    return "" if last >= NORM_SHARE * first else f"median norm fell from {first:.2g} to {last:.2g}"


def diverged(ds: xr.Dataset) -> str:
    """Return when the loss stopped being finite, or "" if it never did."""
    if ds.attrs.get("diverged_at") is not None:
        return f"diverged at step {ds.attrs['diverged_at']}"
    loss = float(ds["training_loss"][-1])
    return "" if math.isfinite(loss) else f"diverged: training loss {loss} at the end"
