"""Change of a weight: W - W0."""

from jaxtyping import Float, Num
from torch import Tensor, float32, promote_types


def difference(W: Num[Tensor, "*shape"], W0: Num[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return W - W0, rounded once to float32 or better, which is finer than the weights' rounding.

    The difference of two float32 numbers is then the float32 number next to the true one.
    """
    dtype = promote_types(promote_types(W.dtype, W0.dtype), float32)
    return W.to(dtype) - W0.to(dtype)
