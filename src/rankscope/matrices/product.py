"""A matrix kept as two factors, never multiplied out."""

from dataclasses import dataclass

import torch
from jaxtyping import Num
from torch import Tensor


@dataclass(frozen=True)
class Product:
    """The matrix left @ right.mT, of rank at most r. Leading axes batch."""

    left: Num[Tensor, "*batch m r"]
    right: Num[Tensor, "*batch n r"]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n) of the matrix the factors stand for."""
        return self.left.shape[-2], self.right.shape[-2]


def product_change(now: Product, before: Product) -> Product:
    """now - before, as factors of twice the inner width.

    K Q^T - K0 Q0^T = (K - K0) Q^T + K0 (Q - Q0)^T = [K - K0, K0] [Q, Q - Q0]^T, differences in float64. The
    shorter form [K, -K0] [Q, Q0]^T is the same matrix, but loses everything at relative changes of 1e-8.
    """
    left, right = now.left.double(), now.right.double()
    left0, right0 = before.left.double(), before.right.double()
    return Product(
        left=torch.cat([left - left0, left0], dim=-1),
        right=torch.cat([right, right - right0], dim=-1),
    )
