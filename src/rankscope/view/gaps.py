"""Why a value is missing: the run does not store it there, or it is not a number.

A rank of the zero matrix is not a number, nor is anything of weights that are not finite.
"""

import numpy as np
import xarray as xr

ORDINARY = "ok"  # the word of `status` for a matrix that has a spectrum and directions


def is_stored(
    part: xr.Dataset, name: str, along: str, lengths: np.ndarray | None = None
) -> np.ndarray:
    """Return (time, row) whether a part of a run, read with `status`, stores the array `name`.

    lengths: of the spectra of each row, which are stored if their last value is.
    """
    array = part[name].transpose(along, ...)
    values = array.to_numpy()
    if array.ndim == 3 and lengths is not None:
        stored = ~np.isnan(values[:, np.arange(len(lengths)), lengths - 1])
    elif array.ndim == 3:  # overlaps: their first value is there if any is
        stored = ~np.isnan(values[..., 0])
    else:  # one number for each row, of all rows at once
        stored = np.broadcast_to(~np.isnan(values).all(axis=1, keepdims=True), values.shape)
    if "status" in part:
        status = part["status"].transpose(along, ...)
        odd = is_odd(status)  # measured, and not a number
        stored = stored | (odd if status.dims == array.dims[:2] else odd.max(1, keepdims=True))
    return np.asarray(stored)


def is_odd(status: xr.DataArray) -> np.ndarray:
    """Return where a matrix was measured and is zero or not finite."""
    words = str(status.attrs.get("flag_meanings", "")).split()
    codes = status.to_numpy()
    ordinary = words.index(ORDINARY) if ORDINARY in words else None
    return np.zeros(codes.shape, bool) if ordinary is None else codes != ordinary


def broken_from(values: np.ndarray) -> int | None:
    """Return the position from which a scalar is not finite up to its end; None if it is.

    A scalar is missing in the same way where it was not logged: between values that are logged
    now and then, and at a snapshot after training.
    """
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite) or len(values) - 1 - finite[-1] <= np.diff(finite).max(initial=1):
        return None
    return int(finite[-1]) + 1
