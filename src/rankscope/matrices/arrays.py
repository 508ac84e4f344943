"""Matrices given as NumPy arrays or lists of numbers, as tensors."""

import numpy as np
import torch
from torch import Tensor


def as_tensor(name: str, x: object) -> Tensor:
    """Return a tensor as it is, and a copy of a NumPy array or of nested lists of numbers."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray):
        array = x
    elif isinstance(x, list | tuple):
        array = _listed(name, x)
    else:
        raise ValueError(
            f"matrix {name!r}: expected a tensor, a NumPy array or a list of numbers, got "
            f"{type(x).__name__}; rankscope.views() gives the matrices of a model"
        )
    try:
        # torch wants writable memory, the machine's byte order and positive strides.
        return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    except TypeError:
        raise ValueError(
            f"matrix {name!r}: expected real floating-point numbers, got an array of "
            f"{array.dtype}; convert it first"
        ) from None


def _listed(name: str, rows: object) -> np.ndarray:
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"matrix {name!r}: expected rows of numbers of equal length, got a list that is none"
        ) from None
