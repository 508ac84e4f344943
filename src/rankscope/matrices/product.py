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
    """Way to read the product `name`: scale * left @ right.mT of two factors.

    kq    K_h^T Q_h     left K_h transposed, right Q_h transposed
    vo    O_h V_h       left O_h,            right V_h transposed
    lora  scale B A     left B,              right A transposed

    A factor can be a product itself: `left_latent @ left` and `right_latent @ right`. Keys that
    are computed from a latent, K_h = U_h D, have left_latent D transposed, left U_h transposed.
    """

    name: str
    kind: Literal["kq", "vo", "lora"]
    left: Reading
    right: Reading
    scale: float = 1.0
    left_latent: Reading | None = None
    right_latent: Reading | None = None

    def product(self, tensors: Mapping[str, Tensor]) -> Product:
        """Read the product out of tensors by name."""
        left = _factor(self.left_latent, self.left, tensors)
        right = _factor(self.right_latent, self.right, tensors)
        dtype = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(dtype), right.to(dtype)
        return Product(left=left if self.scale == 1.0 else self.scale * left, right=right)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Matrices that the product is read from."""
        candidates = (self.left_latent, self.left, self.right_latent, self.right)
        return tuple(reading for reading in candidates if reading is not None)

    @property
    def m(self) -> int:
        """Number of rows."""
        return (self.left_latent or self.left).m

    @property
    def n(self) -> int:
        """Number of columns."""
        return (self.right_latent or self.right).m

    @property
    def r(self) -> int:
        """Inner width of the two factors."""
        return self.left.n


def _factor(latent: Reading | None, reading: Reading, tensors: Mapping[str, Tensor]) -> Tensor:
    """Read one factor; latent @ reading is formed in float64, so that small changes survive."""
    W = reading.view(tensors[reading.parameter]).W
    if latent is None:
        return W
    return latent.view(tensors[latent.parameter]).W.double() @ W.double()


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
