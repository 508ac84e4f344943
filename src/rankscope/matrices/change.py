"""Changes of matrices and products, formed when they are decomposed."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Num
from torch import Tensor

from rankscope.matrices.difference import difference
from rankscope.matrices.product import Product, product_change


@dataclass(frozen=True)
class Change:
    """Matrix now - before of two matrices, or of two products.

    It holds what both are read from, and no memory of its own.
    """

    now: Num[Tensor, "m n"] | Product
    before: Num[Tensor, "m n"] | Product


def formed(now: Sequence[Tensor], before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the factors of the change: (W - W0,), or (left, right) of a product."""
    if len(now) == 1:
        return (difference(now[0], before[0]),)
    change = product_change(Product(*now), Product(*before))
    return change.left, change.right


def moves(factors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the parts of `formed` factors that are zero if nothing has changed."""
    if len(factors) == 1:
        return tuple(factors)
    left, right = factors
    inner = left.shape[-1] // 2
    return left[..., :inner], right[..., inner:]
