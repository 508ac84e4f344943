"""Checks of decompositions of stacks, at a small share of their cost.

Batched solvers of GPUs have been wrong without a word. Eigenvalues must sum to the trace of their
matrix and their squares to its squared Frobenius norm. Eigenvectors must leave no residual.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor

from rankscope.spectra.engine import Engine
from rankscope.spectra.solvers import eigen, roots

ROUNDING, SMALL = 16, 64


class Sums(NamedTuple):
    """Sums of the eigenvalues of Gram matrices, and of their squares, read off the matrices."""

    trace: Float[Tensor, " b"]
    energy: Float[Tensor, " b"]

    @classmethod
    def of(cls, G: Float[Tensor, "b k k"]) -> "Sums":
        energy = torch.linalg.vector_norm(G, dim=(-2, -1)).square()
        return cls(G.diagonal(dim1=-2, dim2=-1).sum(-1), energy)


def wrong_values(sums: Sums, S: Float[Tensor, "b k"]) -> Bool[Tensor, " b"]:
    """Tell for which matrices S^2 are not eigenvalues with these sums, descending."""
    eigenvalues, tolerance = S.square(), rounding_error(S.shape[-1])
    trace = (eigenvalues.sum(-1) - sums.trace).abs() <= tolerance * sums.trace
    energy = (eigenvalues.square().sum(-1) - sums.energy).abs() <= tolerance * sums.energy
    in_order = (S.diff(dim=-1) <= 0).all(-1) & S.isfinite().all(-1)
    right: Tensor = trace & energy & in_order
    return ~right


def wrong_vectors(
    residuals: Float[Tensor, "b k r"], S: Float[Tensor, "b k"], U: Float[Tensor, "b k r"]
) -> Bool[Tensor, " b"]:
    """Tell for which matrices the columns of U leave residuals, or are not orthonormal.

    residuals: G U - U S^2 of the Gram matrices G.
    """
    tolerance = rounding_error(S.shape[-1])
    lengths = torch.linalg.vector_norm(residuals, dim=-2).amax(-1)
    products = U.mT @ U
    products.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    orthonormal = products.abs().amax((-2, -1)) <= tolerance
    right: Tensor = (lengths <= tolerance * S[:, 0].square()) & orthonormal
    return ~right


def wrong_triangles(A: Float[Tensor, "b m c"], R: Float[Tensor, "b r c"]) -> Bool[Tensor, " b"]:
    """Tell for which matrices R^T R is not A^T A, relative to the lengths of the columns of A."""
    gram = A.mT @ A
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    errors = torch.baddbmm(gram, R.mT, R, beta=-1.0).abs()
    allowed = rounding_error(A.shape[-1]) * lengths[:, :, None] * lengths[:, None]
    return ~(errors <= allowed).all(-1).all(-1)


def is_right(engine: Engine, device: torch.device | str) -> bool:
    """Tell whether an engine decomposes a stack of small matrices on a device."""
    generator = torch.Generator("cpu").manual_seed(0)
    with torch.device("cpu"):
        W = torch.randn(3, 40, 60, generator=generator, dtype=torch.float64)
    W = W.to(device)
    G = W @ W.mT
    sums = Sums.of(G)
    S, Q = eigen(G.clone(), engine)
    wrong = wrong_values(sums, S) | wrong_vectors(G @ Q - Q * S[:, None].square(), S, Q)
    return not bool(wrong.any())


@dataclass
class Guarded:
    """Engine for one call of a solver, with `wrong` for the matrices whose values it got wrong."""

    engine: Engine
    wrong: Bool[Tensor, " b"] = field(init=False)

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]:
        """Return W W^T in float64."""
        return self.engine.gram(W)

    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]:
        """Return the eigenvalues, ascending."""
        sums = Sums.of(G)
        values = self.engine.eigenvalues(G)
        self.wrong = wrong_values(sums, roots(values))
        return values

    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
        """Return the eigenvalues, ascending, and their vectors as columns."""
        sums = Sums.of(G)
        values, vectors = self.engine.eigenvectors(G)
        self.wrong = wrong_values(sums, roots(values))
        return values, vectors


def rounding_error(k: int) -> float:
    """Relative error that no backward stable product or solver of size k comes near."""
    return ROUNDING * max(k, SMALL) * torch.finfo(torch.float64).eps
