"""Spectra of many matrices on the worker: all values, or the leading ones and the norm."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Num
from torch import Tensor

from rankscope.matrices import Product, Reading, View
from rankscope.snapshot.portions import padded, portions
from rankscope.spectra import decompose, leading


def all_values(
    matrices: Mapping[str, Tensor] | Mapping[str, Product], *, threads: int
) -> dict[str, np.ndarray]:
    """Return all singular values by name; NaN where a matrix is not finite."""
    jobs: dict[str, Tensor | View | Product] = dict(matrices)
    solved = decompose(jobs, threads=threads, on_failure=lambda names: None)
    return {name: svd.S.detach().cpu().numpy() for name, svd in solved.items()}


def leading_values(W: Num[Tensor, "m n"], rank: int) -> tuple[np.ndarray, float]:
    """Return the leading singular values and the Frobenius norm; NaN for a matrix with NaN."""
    if not bool(W.isfinite().all()):
        return np.full(min(rank, *W.shape), math.nan), math.nan
    part = leading(W, rank)
    return part.S.cpu().numpy(), float(part.frobenius)


def leading_table(
    readings: Sequence[Reading],
    tensors: Mapping[str, Tensor],
    rows: Mapping[str, int],
    *,
    rank: int,
    factor: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return leading values, norms and stable ranks as rows of a table, NaN in the others.

    factor: what to multiply the tensors by.
    """
    values = np.full((len(rows), rank), math.nan)
    norms, ranks = (np.full(len(rows), math.nan) for _ in range(2))
    for reading in readings:
        row = rows[reading.name]
        S, norm = leading_values(reading.view(tensors[reading.parameter]).W, rank)
        values[row, : len(S)], norms[row] = S * factor, norm * factor
        if len(S) and S[0] > 0:
            ranks[row] = (norm / S[0]) ** 2
    return values, norms, ranks


def full_table(
    readings: Sequence[Reading],
    tensors: Mapping[str, Tensor],
    rows: Mapping[str, int],
    *,
    width: int,
    threads: int,
    factor: float = 1.0,
) -> np.ndarray:
    """Return all singular values as rows of a table, NaN in the others."""
    spectra = [np.empty(0)] * len(rows)
    for portion in portions(readings, size=lambda reading: reading.m * reading.n):
        matrices = {r.name: r.view(tensors[r.parameter]).W for r in portion}
        for name, S in all_values(matrices, threads=threads).items():
            spectra[rows[name]] = factor * S
    return padded(spectra, width)
