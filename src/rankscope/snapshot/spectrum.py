"""Stored values of each spectrum: all of them, or the leading ones and what they leave out.

Both kinds have variables of their own, so that a leading value is never read as one of all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from rankscope.snapshot.planning import Plan
from rankscope.snapshot.portions import padded
from rankscope.spectra import Leading, Svd
from rankscope.store import Variable

SIZES = ("frobenius", "remainder", "remainder_norm")  # of a leading part


class Spectrum(NamedTuple):
    """Singular values of one matrix, and the sizes of its leading part; NaN of a full spectrum."""

    S: np.ndarray
    sizes: tuple[float, ...] = (math.nan,) * len(SIZES)


MISSING = Spectrum(np.empty(0))


def spectrum_of(result: Svd | Leading, plan: Plan) -> Spectrum:
    """Return what is stored of a decomposition."""
    if isinstance(result, Svd):
        return Spectrum(_array(result.S))
    assert plan.leading is not None
    part = result.cut(plan.leading)
    return Spectrum(_array(part.S), tuple(float(getattr(part, name)) for name in SIZES))


def zero(k: int, plan: Plan) -> Spectrum:
    """Return the spectrum of a zero matrix with k values."""
    k = k if plan.leading is None else min(k, plan.leading)
    return Spectrum(np.zeros(k), (0.0,) * len(SIZES))


def values_of(
    spectra: Sequence[Spectrum], plan: Plan, *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Return the stored variables of these spectra; prefix is "change_" and the like."""
    rows = [spectrum.S for spectrum in spectra]
    if plan.leading is None:
        return {f"{prefix}singular_values": padded(rows, plan.k)}
    sizes = np.array([spectrum.sizes for spectrum in spectra]).reshape(len(rows), len(SIZES))
    return {
        f"{prefix}leading_values": padded(rows, plan.leading),
        **{f"{prefix}leading_{name}": sizes[:, i] for i, name in enumerate(SIZES)},
    }


def variables_of(
    plan: Plan, dim: str, real: np.dtype, *, prefix: str = ""
) -> Mapping[str, Variable]:
    """Return the declarations of the variables of `values_of`."""
    if plan.leading is None:
        return {f"{prefix}singular_values": Variable(("step", dim, "k"), real)}
    return {
        f"{prefix}leading_values": Variable(("step", dim, "r"), real),
        **{f"{prefix}leading_{name}": Variable(("step", dim), real) for name in SIZES},
    }


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
