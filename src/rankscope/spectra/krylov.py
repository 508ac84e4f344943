"""Leading eigenvalues of W^T W from a block Krylov space, with all vectors kept orthogonal.

The space after j steps is spanned by X, A X, ..., A^(j-1) X for A = W^T W and a random block X. By
Rayleigh and Ritz, the eigenvalues of A projected on it approach the leading eigenvalues from below.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.spectra.operator import Operator

BLOCK = 16  # columns multiplied at a time; fewer make matmuls slow, more need a larger space
GROWTH = 8  # the projection is solved whenever the space has grown by 1/8
NEAR = 10  # up to so many times the tolerance, an estimate at rounding is left to be measured
STALLED = 0.9  # residuals as a share of those two projections ago
PASSES = 4  # at most, to orthogonalise a block that was orthogonalised once
SEED = 0x5EED


@dataclass(frozen=True)
class Ritz:
    """Approximate eigenvectors V of W^T W, leading first, and how the iteration ended.

    excess: estimate of how far the truncation error exceeds the least possible one, relative; 0 if
        residuals have fallen to the rounding of products, so that better ones decide.
    """

    V: Float[Tensor, "n p"]
    columns: int
    excess: float


def leading_vectors(
    W: Operator,
    rank: int,
    *,
    energy: float,
    tolerance: float,
    limit: int,
    start: Float[Tensor, "n b"] | None = None,
) -> Ritz:
    """Return `rank` Ritz vectors when the excess is within the tolerance or the space at its limit.

    energy: squared Frobenius norm of W.
    start: first block; random if None.
    """
    n, eps = W.shape[1], torch.finfo(W.dtype).eps
    generator = torch.Generator("cpu").manual_seed(SEED)
    first = _normal(n, BLOCK, generator, W) if start is None else start.to(W.dtype)
    Q = torch.empty(n, limit + first.shape[1], dtype=W.dtype, device=W.device)
    G = torch.zeros(Q.shape[1], Q.shape[1], dtype=torch.float64, device=W.device)
    X, _ = _orthonormal(first, Q[:, :0], first[:0], generator, W, eps)
    history = _History(rank=rank, energy=energy, eps=eps)
    K = checked = 0
    while True:
        old, K = K, K + X.shape[1]
        Q[:, old:K] = X
        Y = W.transposed_matmul(W.matmul(X))
        P = Q[:, :K].mT @ Y
        G[:K, old:K] = P.double()
        G[old:K, :K] = G[:K, old:K].mT
        X, R = _orthonormal(Y, Q[:, :K], P, generator, W, eps)
        at_limit = K + X.shape[1] > limit
        enough = rank < K and K - checked >= max(2 * BLOCK, checked // GROWTH)
        if at_limit or enough:
            checked = K
            eigenvalues, Z = torch.linalg.eigh((G[:K, :K] + G[:K, :K].mT) / 2)
            eigenvalues, Z = eigenvalues.flip(0).clamp(min=0), Z.flip(1)
            residuals = (R.double() @ Z[old:K, :rank]).norm(dim=0)
            excess = history.excess(eigenvalues, residuals)
            at_rounding = bool(residuals.max() <= 4 * eps * eigenvalues[0])
            # Residuals of directions far below the largest value go on falling below its rounding.
            done = at_rounding and (excess <= NEAR * tolerance or history.stalled)
            if at_limit or done or excess <= tolerance:
                return Ritz(Q[:, :K].double() @ Z[:, :rank], K, 0.0 if at_rounding else excess)


@dataclass
class _History:
    """Energies left out and largest residuals, from one projection to the next."""

    rank: int
    energy: float
    eps: float
    left_out: float = float("inf")
    gain: float = float("inf")
    worst: tuple[float, ...] = ()

    @property
    def stalled(self) -> bool:
        """Whether the last two projections have hardly made the residuals smaller."""
        return len(self.worst) == 3 and self.worst[2] > STALLED * self.worst[0]

    def excess(self, eigenvalues: Tensor, residuals: Tensor) -> float:
        """Estimate the excess from residuals, and from how the energy captured still grows."""
        self.worst = (*self.worst[-2:], float(residuals.max()))
        left_out = max(self.energy - float(eigenvalues[: self.rank].sum()), 0.0)
        rounding = 10 * self.eps * self.energy
        gain = max(self.left_out - left_out, 0.0)
        # Gains shrink geometrically; at the second projection we have seen one only.
        ratio = min(gain / self.gain, 0.9) if math.isfinite(gain + self.gain) else 0.5
        to_come = gain * ratio / (1 - ratio) if gain > rounding else 0.0
        self.left_out, self.gain = left_out, max(gain, rounding)
        floor = max(left_out, rounding)
        return max(excess_of(eigenvalues, residuals, floor), to_come / (2 * floor))


def excess_of(
    eigenvalues: Float[Tensor, " j"], residuals: Float[Tensor, " r"], left_out: float
) -> float:
    """Estimate how far the truncation error exceeds the least one, from residuals of W^T W.

    An eigenvalue moves by at most its residual, and by at most its square over the distance to the
    values left out. Half of their sum over the energy left out is the relative excess of its root.
    """
    rank = len(residuals)
    next_value = eigenvalues[rank] if len(eigenvalues) > rank else eigenvalues[rank - 1] * 0
    distances = eigenvalues[:rank] - next_value
    moves = torch.where(distances > residuals, residuals.square() / distances, residuals)
    moved = float(moves.nan_to_num().sum())
    return 0.0 if moved == 0.0 else moved / (2 * left_out) if left_out else float("inf")


def _orthonormal(
    Y: Tensor, Q: Tensor, P: Tensor, generator: torch.Generator, W: Operator, eps: float
) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis of Y beside Q, and the factor R of Y - Q P, the part outside Q.

    Columns of which nothing is left make place for random ones, so that the space always grows.
    """
    scale = Y.norm(dim=0).amax()
    X, R = torch.linalg.qr(Y - Q @ P)
    empty = R.diagonal().abs() <= 10 * eps * scale
    if empty.any():
        X = torch.where(empty, _normal(len(X), X.shape[1], generator, W) / math.sqrt(len(X)), X)
    for _ in range(PASSES):
        X, T = torch.linalg.qr(X - Q @ (Q.mT @ X))
        R = T @ R
        # A column that lay mostly in Q keeps too few digits outside, and needs another pass.
        if T.diagonal().abs().amin() > 0.5:
            break
    return X, R


def _normal(rows: int, columns: int, generator: torch.Generator, W: Operator) -> Tensor:
    X = torch.randn(rows, columns, generator=generator, dtype=W.dtype, device="cpu")
    return X.to(W.device)
