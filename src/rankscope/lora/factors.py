"""Products of thin factors B A: spectrum and best approximations, never multiplied out."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.matrices import Product
from rankscope.spectra import svd

# Values below this share of the largest are rounding of the factors, not directions.
ZERO = 1e-13


@dataclass(frozen=True)
class Core:
    """SVD of the r x r core of a product left @ right.mT, without the factors.

    With QR decompositions left = Q1 R1 and right = Q2 R2, the core is R1 R2^T = u S v^T, and the
    product's directions are Q1 u and Q2 v. They equal left (R2^T v) / S and right (R1^T u) / S, so
    neither Q is formed.
    """

    S: Float[Tensor, " k"]
    left_mix: Float[Tensor, "r k"]  # R2^T v: left @ left_mix is Q1 u * S
    right_mix: Float[Tensor, "r k"]  # R1^T u

    def best(self, product: Product, rank: int) -> Product:
        """Return the best approximation of a rank; both factors are sqrt(S) times orthonormal."""
        return self._mixed(product, rank, 0.5)

    def directions(self, product: Product, rank: int) -> Product:
        """Return the leading left and right singular vectors as columns."""
        return self._mixed(product, rank, 1.0)

    def _mixed(self, product: Product, rank: int, power: float) -> Product:
        """Divide the mixed factors by a power of S; directions of value 0 become zeros."""
        shares = torch.where(self.S > 0, self.S, torch.inf) ** -power
        return Product(
            left=product.left.double() @ (self.left_mix * shares)[:, :rank],
            right=product.right.double() @ (self.right_mix * shares)[:, :rank],
        )


def core(product: Product) -> Core:
    """Decompose a product in float64, exactly: no approximation but rounding."""
    R1 = torch.linalg.qr(product.left.double(), mode="r").R
    R2 = torch.linalg.qr(product.right.double(), mode="r").R
    small = svd(R1 @ R2.mT)
    S = torch.where(ZERO * small.S[:1] < small.S, small.S, 0.0)
    return Core(S, left_mix=R2.mT @ small.Vh.mT, right_mix=R1.mT @ small.U)
