"""Upper bound on the largest singular value of what a truncation leaves out.

A block Krylov space of its own random start finds the norm of E = (I - U U^T) W (I - V V^T) from
below. Kuczynski and Wozniakowski (1992, Theorem 3.2) bound from above the chance that a start
vector misses the largest eigenvalue of an n x n matrix by a share of more than x after j steps:
1.648 sqrt(n) exp(-sqrt(x) (2j - 1)). The columns of a block start independently, so that their
chances multiply.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.spectra.operator import Operator

CHANCE = 1e-10  # that the bound is too low
COLUMNS = 16
SHARE = 0.25  # at most this share of an eigenvalue may be missed: 15% of a singular value
SEED = 0xCE47


class Bound(NamedTuple):
    """Bound on the norm of E, and the values and vectors of E that the search came upon."""

    norm: float
    values: Float[Tensor, " c"]
    V: Float[Tensor, "n c"]


def norm_left_out(W: Operator, U: Float[Tensor, "m r"], V: Float[Tensor, "n r"]) -> Bound:
    """Bound the norm of E, up to the rounding of the operator's products."""
    n = W.shape[1]
    steps, share = search(n)
    U, V = U.to(W.dtype), V.to(W.dtype)
    generator = torch.Generator("cpu").manual_seed(SEED)
    X = torch.randn(n, COLUMNS, generator=generator, dtype=W.dtype, device="cpu").to(W.device)
    Q, images = V, []
    for _ in range(steps):
        for _ in range(2):
            X = torch.linalg.qr(X - Q @ (Q.mT @ X)).Q
        Q = torch.cat([Q, X], dim=1)
        Y = W.matmul(X)
        images.append(Y - U @ (U.mT @ Y))
        X = W.transposed_matmul(images[-1])
    E = torch.cat(images, dim=1).double()
    eigenvalues, Z = torch.linalg.eigh(E.mT @ E)
    values = eigenvalues.flip(0)[:COLUMNS].clamp(min=0).sqrt()
    vectors = Q[:, V.shape[1] :].double() @ Z.flip(1)[:, :COLUMNS]
    return Bound(float(values[0]) / math.sqrt(1 - share), values, vectors)


def search(n: int) -> tuple[int, float]:
    """Return how many steps to take for n x n matrices, and the share of the norm^2 then missed."""
    need = math.log(1.648 * math.sqrt(n)) + math.log(1 / CHANCE) / COLUMNS
    steps = math.ceil((need / math.sqrt(SHARE) + 1) / 2)
    return steps, (need / (2 * steps - 1)) ** 2
