"""Triangular factors of tall matrices, by blocks of rows that a GPU factors all at once."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

# torch factors stacks of at most so many rows in one launch, and taller matrices one by one.
ROWS = 256


def triangular(A: Float[Tensor, "b m c"]) -> Float[Tensor, "b r c"]:
    """Return R of a QR decomposition of each matrix: R^T R = A^T A.

    Blocks of rows are factored, then their factors below each other, until one block is left.
    Householder reflections keep the accuracy of each column, as those of the whole matrix do.
    """
    batch, rows, columns = A.shape
    while rows > ROWS and 2 * columns <= ROWS:
        A = pad(A, (0, 0, 0, -rows % ROWS))
        blocks = torch.linalg.qr(A.reshape(-1, ROWS, columns), mode="r").R
        A = blocks.reshape(batch, -1, columns)
        rows = A.shape[1]
    R: Tensor = torch.linalg.qr(A, mode="r").R
    return R
