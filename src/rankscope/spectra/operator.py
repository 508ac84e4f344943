"""Matrices known by their products with other matrices, whether their entries exist or not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Num
from torch import Tensor

# Rows or columns that are formed or converted to float64 at a time.
PANEL = 256

Multiply = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Operator:
    """Matrix of m x n that need not be formed, such as a gradient, a difference or B A.

    matmul: takes X of n x c to W @ X.
    transposed_matmul: takes Y of m x c to W.mT @ Y.
    dtype: float32 or float64, of the arguments and results of both.
    W: the matrix itself if it exists.
    """

    shape: tuple[int, int]
    matmul: Multiply
    transposed_matmul: Multiply
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"
    W: Num[Tensor, "m n"] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"an Operator computes in float32 or float64, got {self.dtype}; convert inside "
                "matmul and transposed_matmul"
            )

    @property
    def mT(self) -> "Operator":
        """Transposed matrix."""
        m, n = self.shape
        W = None if self.W is None else self.W.mT
        return Operator((n, m), self.transposed_matmul, self.matmul, self.dtype, self.device, W)

    def panels(self) -> Iterator[tuple[slice, Float[Tensor, "m c"]]]:
        """Yield all columns in float64, PANEL at a time, with the slice where they stand."""
        n = self.shape[1]
        for start in range(0, n, PANEL):
            columns = slice(start, min(start + PANEL, n))
            if self.W is not None:
                yield columns, self.W[:, columns].double()
                continue
            unit = torch.zeros(n, columns.stop - start, dtype=self.dtype, device=self.device)
            unit[columns].fill_diagonal_(1.0)
            yield columns, self.matmul(unit).double()

    def energy(self) -> float:
        """Sum of squares of all entries, in float64."""
        if self.W is not None:
            return float(torch.linalg.vector_norm(self.W, dtype=torch.float64).square())
        return sum(float(panel.square().sum()) for _, panel in self.panels())

    def in_float64(self) -> "Operator":
        """Return the same matrix, multiplied in float64 as far as its entries are known."""
        if self.dtype == torch.float64:
            return self
        if self.W is not None:
            forward, backward = _in_float64(self.W)
        else:

            def forward(X: Tensor) -> Tensor:
                return self.matmul(X.to(self.dtype)).double()

            def backward(Y: Tensor) -> Tensor:
                return self.transposed_matmul(Y.to(self.dtype)).double()

        return Operator(self.shape, forward, backward, torch.float64, self.device, self.W)


def of_tensor(W: Num[Tensor, "m n"]) -> Operator:
    """Operator of a tensor; formats shorter than float32 are converted to it."""
    if W.dtype != torch.float64:
        W = W.float()
    return Operator(
        (W.shape[0], W.shape[1]),
        lambda X: _times(W, X),
        lambda Y: _times(W.mT, Y),
        W.dtype,
        W.device,
        W,
    )


def _times(W: Tensor, X: Tensor) -> Tensor:
    """Return W @ X by (X^T W^T)^T, which MKL computes up to ten times faster for few columns."""
    return (X.mT.contiguous() @ W.mT).mT


def _in_float64(W: Tensor) -> tuple[Multiply, Multiply]:
    """Products with W and W^T that convert W to float64 by panels, along its rows in memory."""
    if W.stride(-1) != 1:
        of_transposed = _in_float64(W.mT if W.stride(0) == 1 else W.mT.contiguous())
        return of_transposed[1], of_transposed[0]
    panels = torch.split(W, PANEL)

    def forward(X: Tensor) -> Tensor:
        return torch.cat([panel.double() @ X for panel in panels])

    def backward(Y: Tensor) -> Tensor:
        total = Y.new_zeros(Y.shape[1], W.shape[1])
        for panel, columns in zip(panels, torch.split(Y.mT.contiguous(), PANEL, 1), strict=True):
            total.addmm_(columns, panel.double())
        return total.mT

    return forward, backward
