"""One attention head with full matrices, learning from fixed data: boix2023 Eq. 1 and section 5.

The head depends on its weights through W_K W_Q^T and W_V W_O^T alone. The theory of diagonal
networks does not cover it; `theory.full_flow` shows how it learns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Weights = Float[Tensor, "4 d r"]  # W_K, W_Q, W_V, W_O


def attention(
    x: Float[Tensor, "*samples n d"],
    W_K: Float[Tensor, "d r"],
    W_Q: Float[Tensor, "d r"],
    W_V: Float[Tensor, "d r"],
    W_O: Float[Tensor, "d r"],
) -> Float[Tensor, "*samples n d"]:
    """Return smax(X W_K W_Q^T X^T) X W_V W_O^T, with softmax along rows, no 1 / sqrt(d) (Eq. 1)."""
    scores = (x @ W_K) @ (x @ W_Q).mT
    return ((scores.softmax(-1) @ x) @ W_V) @ W_O.mT


@dataclass(frozen=True, eq=False)
class FullHead:
    """Loss of one attention head on data (x, target), as a function of its four matrices.

    The loss is half the squared error, summed over the last axis and averaged over samples and
    tokens. The weights are one tensor (4, d, r) that stacks W_K, W_Q, W_V and W_O. Data are
    converted to float64.
    """

    x: Float[Tensor, "samples n d"]
    target: Float[Tensor, "samples n d"]

    def __post_init__(self) -> None:
        if self.x.ndim != 3 or self.x.shape != self.target.shape or self.x.numel() == 0:
            raise ValueError(
                "FullHead: expected x and target of one shape (samples, tokens, d), got "
                f"{tuple(self.x.shape)} and {tuple(self.target.shape)}"
            )
        for name in ("x", "target"):
            data = getattr(self, name).detach().double()
            if not data.isfinite().all():
                raise ValueError(
                    f"FullHead: {name} has {int((~data.isfinite()).sum())} entries that are not "
                    "finite; remove these samples"
                )
            object.__setattr__(self, name, data.contiguous())

    def output(self, weights: Weights) -> Float[Tensor, "samples n d"]:
        """Return the head's output for x."""
        return attention(self.x, *self.checked(weights))

    def loss(self, weights: Weights) -> float:
        """Return half the squared error per token."""
        residual = self.output(weights) - self.target
        return float(residual.square().sum()) / 2 / self._tokens

    def gradient(self, weights: Weights) -> Weights:
        """Return dL/dW of the four matrices."""
        return self.derivatives(weights)[1]

    @torch.no_grad()
    def derivatives(self, weights: Weights) -> tuple[float, Weights, Float[Tensor, "2 d d"]]:
        """Return the loss, its gradient, and its gradient in W_K W_Q^T and W_V W_O^T.

        A flow needs them some thousand times, and autograd takes twice as long as this.
        """
        K, Q, V, O = self.checked(weights)  # noqa: E741
        x, KQ, VO = self.x, K @ Q.mT, V @ O.mT
        P = ((x @ KQ) @ x.mT).softmax(-1)  # (samples, n, n)
        mixed = P @ x
        residual = mixed @ VO - self.target
        loss = float(residual.square().sum()) / 2 / self._tokens
        residual /= self._tokens

        dVO = mixed.flatten(0, 1).mT @ residual.flatten(0, 1)
        dP = (residual @ VO.mT) @ x.mT
        dscores = P * (dP - (P * dP).sum(-1, keepdim=True))
        dKQ = x.flatten(0, 1).mT @ (dscores @ x).flatten(0, 1)
        gradient = torch.stack([dKQ @ Q, dKQ.mT @ K, dVO @ O, dVO.mT @ V])
        return loss, gradient, torch.stack([dKQ, dVO])

    @property
    def _tokens(self) -> int:
        return self.x.shape[0] * self.x.shape[1]

    def checked(self, weights: Weights) -> Tensor:
        """Return the weights in float64 if their shape fits the data."""
        d = self.x.shape[-1]
        if weights.ndim != 3 or weights.shape[:2] != (4, d):
            raise ValueError(
                f"weights: expected W_K, W_Q, W_V, W_O stacked to (4, {d}, r), got shape "
                f"{tuple(weights.shape)}"
            )
        return weights.double()
