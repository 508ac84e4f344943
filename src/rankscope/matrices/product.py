"""Matrices as two factors that are never multiplied out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Num
from torch import Tensor

from rankscope.matrices.reading import Reading


@dataclass(frozen=True)
class Product:
    """Matrix left @ right.mT, of rank at most r, with leading batch axes.

    Examples are W_K W_Q^T and W_V W_O^T of one head in boix2023, section 5.
    """

    left: Num[Tensor, "*batch m r"]
    right: Num[Tensor, "*batch n r"]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (m, n) of the matrix that the factors stand for."""
        return self.left.shape[-2], self.right.shape[-2]


@dataclass(frozen=True)
class ProductReading:
    """Way to read the product `name`: scale * left @ right.mT of two matrices.

    kq    K_h^T Q_h     left K_h transposed, right Q_h transposed
    vo    O_h V_h       left O_h,            right V_h transposed
    lora  scale B A     left B,              right A transposed
    """

    name: str
    kind: Literal["kq", "vo", "lora"]
    left: Reading
    right: Reading
    scale: float = 1.0

    def product(self, tensors: Mapping[str, Tensor]) -> Product:
        """Read the product out of tensors by name."""
        left = self.left.view(tensors[self.left.parameter]).W
        right = self.right.view(tensors[self.right.parameter]).W
        return Product(left=left if self.scale == 1.0 else self.scale * left, right=right)


def product_change(now: Product, before: Product) -> Product:
    """Return now - before as factors of twice the inner width: boix2023, section 5, Figs. 3-5.

    K Q^T - K0 Q0^T = (K - K0) Q^T + K0 (Q - Q0)^T = [K - K0, K0] [Q, Q - Q0]^T, with differences in
    float64. The shorter form [K, -K0] [Q, Q0]^T is the same matrix, but rounding destroys it at
    relative changes of 1e-8.
    """
    left, right = now.left.double(), now.right.double()
    left0, right0 = before.left.double(), before.right.double()
    return Product(
        left=torch.cat([left - left0, left0], dim=-1),
        right=torch.cat([right, right - right0], dim=-1),
    )
