"""Upper bounds on the largest eigenvalues of what is left out of stacks of Gram matrices.

As `certificate` does it for one matrix, by products of large matrices. The bound does not rest on
an eigen-solver.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.spectra.certificate import COLUMNS, SEED, search
from rankscope.spectra.chebyshev import normal
from rankscope.spectra.engine import Engine
from rankscope.spectra.orthonormal import cholesky_step, shift_of, unit

# Share of random columns in each block: without them, blocks of a matrix of low rank would shrink.
FRESH = 1e-10
SQUARINGS = 7  # of a matrix, whose norm then exceeds the largest eigenvalue by 1.9% at most


class Bound(NamedTuple):
    """Bound on the eigenvalues of (I - U U^T) G (I - U U^T), and some Ritz values of it.

    doubt: largest error of the inner products of U and the vectors of the search.
    """

    eigenvalue: Float[Tensor, " b"]
    values: Float[Tensor, "b c"]
    doubt: Float[Tensor, " b"]


def eigenvalues_left_out(
    G: Float[Tensor, "b k k"], U: Float[Tensor, "b k r"], engine: Engine
) -> Bound:
    """Bound the eigenvalues that orthonormal columns leave out."""
    k, rank = U.shape[-2:]
    steps, share = search(k)
    blocks = normal(G, steps * COLUMNS, SEED).split(COLUMNS, dim=-1)
    basis, images = U, []
    X = blocks[0]
    for fresh in blocks:
        X = _beside(basis, X, fresh * (FRESH / math.sqrt(k)))
        basis = torch.cat([basis, X], dim=-1)
        X = G @ X
        images.append(X)
    Q = basis[..., rank:]
    H = Q.mT @ torch.cat(images, dim=-1)
    H = ((H + H.mT) / 2).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    errors = basis.mT @ basis
    errors.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    largest = _largest(H) / (1 - share)
    return Bound(largest, engine.eigenvalues(H)[:, -COLUMNS:], errors.abs().amax((-2, -1)))


def _beside(basis: Tensor, X: Tensor, fresh: Tensor) -> Tensor:
    """Return orthonormal columns for X beside an orthonormal basis."""
    X = unit(_without(basis, X)) + fresh
    for shift in (shift_of(*X.shape[-2:]), 0.0, 0.0):
        X = cholesky_step(_without(basis, X), shift)
    return X


def _without(basis: Tensor, X: Tensor) -> Tensor:
    return X - basis @ (basis.mT @ X)


def _largest(H: Float[Tensor, "b c c"]) -> Float[Tensor, " b"]:
    """Bound the largest eigenvalue from above: ||H^p||_F^(1/p) for a large power p."""
    logarithm = torch.zeros_like(H[:, 0, 0])
    for squaring in range(SQUARINGS + 1):
        norm = torch.linalg.matrix_norm(H).clamp(min=torch.finfo(H.dtype).tiny)
        logarithm += norm.log() / 2**squaring
        H = H / norm[:, None, None]
        H = H @ H
    return logarithm.exp()
