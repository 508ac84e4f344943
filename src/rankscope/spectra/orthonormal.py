"""Orthonormal bases of stacks of columns, by Cholesky factorisations and large products."""

import torch
from jaxtyping import Float
from torch import Tensor


def orthonormal(Y: Float[Tensor, "b k c"]) -> Float[Tensor, "b k c"]:
    """Return orthonormal bases of the columns by three Cholesky factorisations.

    The first is shifted, so that it exists for any columns. fukaya2020, Algorithm 4.
    """
    k, c = Y.shape[-2:]
    Y = unit(Y)
    for shift in (shift_of(k, c), 0.0, 0.0):
        Y = cholesky_step(Y, shift)
    return Y


def unit(Y: Float[Tensor, "b k c"]) -> Float[Tensor, "b k c"]:
    """Return columns of length 1; those that are zero stay zero."""
    tiny = torch.finfo(Y.dtype).tiny
    lengths: Tensor = torch.linalg.vector_norm(Y, dim=-2, keepdim=True).clamp(min=tiny)
    return Y / lengths


def shift_of(k: int, c: int) -> float:
    """Return the shift for c columns of length 1."""
    return 11 * (k * c + c * (c + 1)) * torch.finfo(torch.float64).eps / 2 * c


def cholesky_step(Y: Float[Tensor, "b k c"], shift: float) -> Float[Tensor, "b k c"]:
    """Return Y L^-T for L L^T = Y^T Y + shift; small factors are inverted, to multiply by."""
    N = Y.mT @ Y
    if shift:
        N.diagonal(dim1=-2, dim2=-1).add_(shift)
    L, _ = torch.linalg.cholesky_ex(N)
    identity = torch.eye(N.shape[-1], dtype=N.dtype, device=N.device).expand_as(N)
    inverse: Tensor = torch.linalg.solve_triangular(L, identity, upper=False)
    return Y @ inverse.mT
