"""Stored values of each spectrum: all of them, or the leading ones and what they leave out.

Both kinds have variables of their own, so that a leading value is never read as one of all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankscope.snapshot.planning import Plan
from rankscope.snapshot.portions import padded
from rankscope.spectra import Leading, Svd
from rankscope.spectra.truncation import FULL_ERROR
from rankscope.store import Variable

SIZES = ("frobenius", "remainder", "remainder_norm")  # of a leading part


NO_SIZES = (math.nan,) * len(SIZES)


class Spectrum(NamedTuple):
    """Singular values of one matrix, and the sizes of its leading part; NaN of a full spectrum."""

    S: np.ndarray
    sizes: tuple[float, ...] = NO_SIZES


MISSING = Spectrum(np.empty(0))


def spectrum_of(result: Svd | Leading, plan: Plan) -> Spectrum:
    """Return what is stored of a decomposition."""
    return spectra_of({"": numbers_of(result, plan)}, plan)[""]


def spectra_of(numbers: Mapping[str, Sequence[Tensor]], plan: Plan) -> dict[str, Spectrum]:
    """Return what is stored of decompositions, by name; all of it leaves the device at once.

    numbers: what `numbers_of` returns.
    """
    arrays = iter(at_host([x for row in numbers.values() for x in row]))
    spectra: dict[str, Spectrum] = {}
    for name, row in numbers.items():
        S, *sizes = (next(arrays) for _ in row)
        if plan.leading is None:
            spectra[name] = Spectrum(S)
        else:
            spectra[name] = (
                Spectrum(S, tuple(map(float, sizes))) if sizes else _cut(S, plan.leading)
            )
    return spectra


def _cut(S: np.ndarray, leading: int) -> Spectrum:
    """Return the leading part of all values."""
    rest, error = S[leading:], FULL_ERROR * float(S[:1].sum())
    remainder = float(rest[:1].sum()) + error
    return Spectrum(S[:leading], (float(np.linalg.norm(S)), remainder, float(np.linalg.norm(rest))))


def numbers_of(result: Svd | Leading, plan: Plan) -> tuple[Tensor, ...]:
    """Return what is stored of a decomposition: values, and the sizes of a leading part."""
    if isinstance(result, Svd):
        return (result.S,)
    assert plan.leading is not None
    part = result.cut(plan.leading)
    return (part.S, *(getattr(part, name) for name in SIZES))


def at_host(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Return tensors as arrays, brought from a GPU by one copy instead of one for each."""
    away = [i for i, x in enumerate(tensors) if x.device.type != "cpu"]
    if len({tensors[i].device for i in away}) > 1:
        away = []
    moved: dict[int, Tensor] = {}
    if away:
        flat = torch.cat([tensors[i].double().flatten() for i in away]).cpu()
        parts = flat.split([tensors[i].numel() for i in away])
        moved = {i: part.view(tensors[i].shape) for i, part in zip(away, parts, strict=True)}
    return [moved.get(i, x).detach().cpu().numpy() for i, x in enumerate(tensors)]


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
