"""Triangular factors of stacks of tall matrices, by few launches on a GPU."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

# torch factors stacks of at most so many rows in one launch, and taller matrices one by one.
ROWS = 256
# Largest distance of the first basis from an orthonormal one, from which a second step makes an
# orthonormal basis up to rounding (yamamoto2015, Theorem 3.1).
NEARLY = 5 / 64


def triangular(A: Float[Tensor, "b m c"]) -> Float[Tensor, "b r c"]:
    """Return R of a QR decomposition of each matrix: R^T R = A^T A.

    Errors are relative to the length of each column.
    """
    if A.shape[1] <= max(ROWS, A.shape[2]):
        return by_reflections(A)
    R, is_right = by_cholesky(A)
    wrong = [i for i, right in enumerate(is_right.tolist()) if not right]
    if wrong:
        index = torch.tensor(wrong).to(A.device)
        R.index_copy_(0, index, by_reflections(A.index_select(0, index)))
    return R


def by_cholesky(A: Float[Tensor, "b m c"]) -> tuple[Float[Tensor, "b c c"], Bool[Tensor, " b"]]:
    """Return R by two Cholesky factorisations, and whether it is right.

    It is wrong where columns of unit length are nearly dependent.
    """
    lengths = torch.linalg.vector_norm(A, dim=1)
    zero = (lengths == 0).to(A.dtype)
    Q = A / (lengths + zero)[:, None]
    L, first = torch.linalg.cholesky_ex(Q.mT @ Q + torch.diag_embed(zero))
    Q = torch.linalg.solve_triangular(L.mT, Q, upper=True, left=False)
    N = Q.mT @ Q + torch.diag_embed(zero)
    M, second = torch.linalg.cholesky_ex(N)
    N.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    near = torch.linalg.vector_norm(N, dim=(-2, -1)) <= NEARLY
    return (L @ M).mT * lengths[:, None], near & (first == 0) & (second == 0)


def by_reflections(A: Float[Tensor, "b m c"]) -> Float[Tensor, "b r c"]:
    """Return R by Householder reflections of blocks of rows, then of their factors, and so on."""
    batch, rows, columns = A.shape
    while rows > ROWS and 2 * columns <= ROWS:
        A = pad(A, (0, 0, 0, -rows % ROWS))
        blocks = torch.linalg.qr(A.reshape(-1, ROWS, columns), mode="r").R
        A = blocks.reshape(batch, -1, columns)
        rows = A.shape[1]
    R: Tensor = torch.linalg.qr(A, mode="r").R
    return R
