"""Metrics of runs that keep leading singular values, the Frobenius norm and a bound on the rest.

`singular_values` of a matrix has all of its values; such a run has `leading_values` instead.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from rankscope import metrics

Stored = tuple[xr.DataArray, xr.DataArray]  # leading values, Frobenius norms


def leading_of(dataset: xr.Dataset, of: str) -> Stored | None:
    """Return what the run keeps of the spectra named `of`, if it keeps a leading part only."""
    name = of.replace("singular_values", "leading_values")
    if of in dataset or name == of or name not in dataset:
        return None
    return dataset[name], dataset[of.replace("singular_values", "leading_frobenius")]


def metric_of_leading(name: str, stored: Stored, **options: float) -> xr.DataArray:
    """Return a metric that needs no more than is stored; ValueError for any other one."""
    if name not in METRICS:
        raise ValueError(
            f"{name} needs the full spectrum, and this run keeps the leading "
            f'{stored[0].sizes["r"]} values; track with spectrum="full"'
        )
    return METRICS[name](*stored, **options).astype(stored[0].dtype).rename(name)


def _spectral_norm(values: xr.DataArray, norm: xr.DataArray) -> xr.DataArray:
    return values.isel(r=0, drop=True)


def _frobenius_norm(values: xr.DataArray, norm: xr.DataArray) -> xr.DataArray:
    return norm


def _stable_rank(values: xr.DataArray, norm: xr.DataArray) -> xr.DataArray:
    largest = values.isel(r=0, drop=True).astype(np.float64)
    return (norm / largest.where(largest > 0)) ** 2


def _energy_rank(values: xr.DataArray, norm: xr.DataArray, *, fraction: float) -> xr.DataArray:
    """NaN where the leading values hold less than `fraction` of the energy."""
    ranks: xr.DataArray = xr.apply_ufunc(
        lambda S, norm: metrics.energy_rank(S, fraction, norm=norm),
        values.fillna(0.0),
        norm,
        input_core_dims=[["r"], []],
    )
    return ranks


METRICS: dict[str, Callable[..., xr.DataArray]] = {
    "spectral_norm": _spectral_norm,
    "frobenius_norm": _frobenius_norm,
    "stable_rank": _stable_rank,
    "energy_rank": _energy_rank,
}
