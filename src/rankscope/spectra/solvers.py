"""Two ways to decompose a stack of matrices, both in float64.

Largest error of a singular value, in units of the largest one:

    by_gram        1e-11
    direct         4e-15
    float32 SVD    3e-7 to 2e-6

We measured it on random spectra, spectra over 5 to 12 decades and exact zeros, for matrices of
768 x 768 to 768 x 3072.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.spectra.engine import COLUMNS, Engine
from rankscope.spectra.fastest import engine_of

# A Gram matrix squares the spectrum; its small eigenvalues are off by up to 1e-15 of the largest.
# With the largest singular value as 1, one of 1e-5 is off by 1e-11, and one of 1e-8 is all noise.
VALUES_FLOOR = 1e-5  # refine a matrix with values below this
VECTORS_FLOOR = (
    1e-4  # or if vectors of such values are wanted; above, W v / s is orthogonal to 1e-8
)
SPLIT = 1e-4  # refine the values below this


@dataclass(frozen=True)
class Svd:
    """Leading directions and all singular values: W = U @ diag(S) @ Vh when r = k = min(m, n).

    S is descending and complete for any number of directions r. U[:, i] and Vh[i] belong to S[i].
    Beyond the rank of W, directions are an arbitrary orthonormal completion. A matrix that could
    not be decomposed is NaN throughout.
    """

    U: Float[Tensor, "*batch m r"]
    S: Float[Tensor, "*batch k"]
    Vh: Float[Tensor, "*batch r n"]

    @property
    def mT(self) -> "Svd":
        """Decomposition of the transposed matrix."""
        return Svd(U=self.Vh.mT, S=self.S, Vh=self.U.mT)


Solver = Callable[[Tensor, int], Svd]


def direct(W: Num[Tensor, "batch m n"], rank: int) -> Svd:
    """Decompose matrices in float64 by LAPACK's SVD."""
    if W.shape[-2] < W.shape[-1]:
        # MKL's LQ, which wide matrices go through, is several times slower than its QR.
        return direct(W.mT, rank).mT
    W = W.double()
    if rank == 0:
        return _without_vectors(W, torch.linalg.svdvals(W))
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    return Svd(U=U[..., :rank], S=S, Vh=Vh[..., :rank, :])


def by_gram(W: Num[Tensor, "batch m n"], rank: int) -> Svd:
    """Decompose through the eigenvalues of W W^T; refine matrices whose values are too small."""
    if W.shape[-2] > W.shape[-1]:
        return by_gram(W.mT, rank).mT
    if W.dtype == torch.float64:
        # Squares could overflow. Squares of shorter formats cannot, and are even exact.
        largest = W.abs().amax(dim=(-2, -1))
        scale = torch.where(largest > 0, largest, 1.0)
        result = _by_gram(W / scale[:, None, None], rank)
        return Svd(U=result.U, S=result.S * scale[:, None], Vh=result.Vh)
    return _by_gram(W, rank)


def _by_gram(W: Num[Tensor, "batch m n"], rank: int) -> Svd:
    return _with_vectors(W, rank) if rank else _values(W)


def _values(W: Num[Tensor, "batch m n"]) -> Svd:
    engine = engine_of(W)
    G = engine.gram(W)
    S = roots(engine.eigenvalues(G))
    poor = S[:, -1] < VALUES_FLOOR * S[:, 0]
    if poor.any():
        # If most values are small, a direct SVD takes less time than refining.
        mostly_small = (S[poor] < SPLIT * S[poor, :1]).double().mean() > 0.5
        better = (
            direct(W[poor], 0)
            if mostly_small
            else refine(W[poor], *eigen(G[poor], engine), 0, engine)
        )
        S[poor] = better.S
    return _without_vectors(W, S)


def _with_vectors(W: Num[Tensor, "batch m n"], rank: int) -> Svd:
    engine = engine_of(W)
    S, Q = eigen(engine.gram(W), engine)
    poor = (S[:, -1] < VALUES_FLOOR * S[:, 0]) | (S[:, rank - 1] <= VECTORS_FLOOR * S[:, 0])
    U = Q[..., :rank]
    Vh = torch.cat([U.mT @ block.double() for block in torch.split(W, COLUMNS, -1)], dim=-1)
    Vh /= S[:, :rank, None]
    if poor.any():
        better = refine(W[poor], S[poor], Q[poor], rank, engine)
        U[poor], S[poor], Vh[poor] = better.U, better.S, better.Vh
    return Svd(U=U, S=S, Vh=Vh)


def of_product(
    left: Num[Tensor, "batch m inner"],
    right: Num[Tensor, "batch n inner"],
    rank: int,
    solver: Solver,
) -> Svd:
    """Decompose left @ right.mT by a QR of the longer factor, then `solver` on a smaller matrix.

    Factors may mix scales, as in `product_change`, where each column of left is tiny or meets a
    tiny one of right. QR is accurate column by column, so errors stay relative to the product.
    """
    if left.shape[-2] > right.shape[-2]:
        return of_product(right, left, rank, solver).mT
    Q, R = torch.linalg.qr(right.double(), mode="reduced" if rank else "r")
    inner = solver(left.double() @ R.mT, rank)
    Vh = inner.Vh @ Q.mT if rank else inner.Vh.new_empty(len(right), 0, right.shape[-2])
    return Svd(U=inner.U, S=inner.S, Vh=Vh)


def refine(
    W: Num[Tensor, "batch m n"],
    S: Float[Tensor, "batch m"],
    Q: Float[Tensor, "batch m m"],
    rank: int,
    engine: Engine,
) -> Svd:
    """Take one Rayleigh-Ritz step: solve W projected on the eigenvectors Q of its small values.

    The projection is SPLIT times smaller than W, so its Gram matrix resolves SPLIT times smaller
    values: errors fall to 3e-13. Matrices of a stack differ in how many good values they have. Rows
    of surplus good values are emptied and get an eigenvalue above all small ones, so they stay
    first.
    """
    bound = SPLIT * S[:, :1]
    good = S.gt(bound).sum(-1)  # the number of good values of each matrix
    first = int(good.min())
    wanted = max(0, rank - first)
    P = Q[..., first:]  # (batch, m, c)
    surplus = torch.arange(first, S.shape[-1], device=S.device) < good[:, None]  # (batch, c)
    projected = (P.mT @ W.double()).masked_fill(surplus[..., None], 0.0)
    G = engine.gram(projected)  # (batch, c, c)
    G.diagonal(dim1=-2, dim2=-1).add_(surplus * 2.0 * bound.square())
    U = Q[..., :rank]
    if wanted:
        small, rotation = eigen(G, engine)
        rotated = P @ rotation[..., :wanted]
        U = torch.cat(
            [Q[..., :first], torch.where(surplus[:, None, :wanted], P[..., :wanted], rotated)],
            dim=-1,
        )
    else:
        small = roots(engine.eigenvalues(G))
    S = torch.cat([S[:, :first], torch.where(surplus, S[:, first:], small)], dim=-1)
    # The two steps may disagree by rounding on the order of values at the split.
    S = S.sort(dim=-1, descending=True).values
    if rank == 0:
        return _without_vectors(W, S)
    # QR keeps the other side orthonormal down to, and beyond, the rank of W.
    V, R = torch.linalg.qr(W.double().mT @ U)
    signs = torch.where(R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    return Svd(U=U, S=S, Vh=(V * signs[:, None, :]).mT)


def eigen(
    G: Float[Tensor, "batch m m"], engine: Engine
) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
    """Return square roots of the eigenvalues, descending, and their eigenvectors as columns."""
    eigenvalues, Q = engine.eigenvectors(G)
    return roots(eigenvalues), Q.flip(-1)


def roots(eigenvalues: Float[Tensor, "batch m"]) -> Float[Tensor, "batch m"]:
    """Return square roots of eigenvalues, descending."""
    # Rounding can make zeros negative.
    return eigenvalues.clamp(min=0.0).sqrt().flip(-1)


def _without_vectors(W: Tensor, S: Tensor) -> Svd:
    batch, m, n = W.shape
    return Svd(U=S.new_empty(batch, m, 0), S=S, Vh=S.new_empty(batch, 0, n))
