"""How many values the spectra of a run have."""

import numpy as np

from rankscope.view.opened import Opened


def length_of(opened: Opened, of: str, axis: str, row: int) -> int:
    """Return the number of stored values of one matrix; the rest of its row is padding."""
    return min(int(opened.ds[of].shape[2]), whole_length(opened, of, axis, row))


def lengths_of(opened: Opened, of: str, axis: str) -> np.ndarray | None:
    """Return the number of stored values of each row; None for arrays that are no spectra."""
    array = opened.ds[of]
    if array.ndim != 3 or array.dims[2] not in ("k", "r"):
        return None
    rows = range(array.shape[1])
    return np.array([length_of(opened, of, axis, row) for row in rows], int)


def whole_length(opened: Opened, of: str, axis: str, row: int) -> int:
    """Return the number of singular values of one matrix, all of which may be stored or not."""
    shape = opened.rows_of(axis)[row] if axis in opened.names else {}
    if "k" not in shape:
        return int(opened.ds[of].shape[2])
    if of.startswith("product_change_"):  # a difference of products of inner width r
        return min(int(shape["m"]), int(shape["n"]), 2 * int(shape["k"]))
    return int(shape["k"])
