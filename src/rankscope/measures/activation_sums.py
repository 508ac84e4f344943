"""Sums over the tokens of a layer's output, from which its ranks follow; no output is stored."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

ROWS = 4096  # tokens at a time, which bounds the memory of their copy in float64


@dataclass
class ActivationSums:
    """Sums over tokens x of one layer: their number, x, x x^T, x / |x|, |x|, and of x other than 0.

    In float64, or float32 where a device has no float64.
    """

    count: Float[Tensor, ""]
    total: Float[Tensor, " d"]
    gram: Float[Tensor, "d d"]
    units: Float[Tensor, " d"]
    sizes: Float[Tensor, " d"]
    nonzero: Float[Tensor, ""]
    rows: int = 0  # the number of tokens of this rank, known without waiting for a GPU

    @classmethod
    def zero(cls, width: int, device: torch.device) -> "ActivationSums":
        """Return the sums over no tokens."""
        dtype = torch.float32 if device.type == "mps" else torch.float64

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(zeros(), zeros(width), zeros(width, width), zeros(width), zeros(width), zeros())

    @property
    def width(self) -> int:
        return len(self.total)

    def add(self, tokens: Num[Tensor, "n d"]) -> None:
        """Add the tokens of a forward pass; the host does not wait for a GPU."""
        self.rows += len(tokens)
        for rows in torch.split(tokens, ROWS):
            x = rows.to(self.gram.dtype)
            lengths = torch.linalg.vector_norm(x, dim=1)
            self.count += len(x)
            self.total += x.sum(0)
            self.gram.addmm_(x.mT, x)
            self.units += x.mT @ torch.where(lengths > 0, 1 / lengths, 0.0)
            self.sizes += x.abs().sum(0)
            self.nonzero += (lengths > 0).sum()

    @property
    def packed(self) -> Float[Tensor, " n"]:
        """All sums in one vector, which ranks can add up."""
        ends = self.count.reshape(1), self.nonzero.reshape(1)
        return torch.cat([*ends, self.total, self.units, self.sizes, self.gram.flatten()])

    def unpacked(self, packed: Float[Tensor, " n"]) -> "ActivationSums":
        """Return sums of this width from such a vector."""
        d = self.width
        count, nonzero, total, units, sizes, gram = packed.split([1, 1, d, d, d, d * d])
        return ActivationSums(count[0], total, gram.reshape(d, d), units, sizes, nonzero[0])

    def singular_values(self, *, centered: bool) -> Float[np.ndarray, " d"]:
        """Singular values of the tokens as rows of a matrix, less their mean if `centered`."""
        gram = self.gram.double().cpu()
        if centered and self.count > 0:
            total = self.total.double().cpu()
            gram = gram - torch.outer(total, total) / float(self.count)
        if not gram.isfinite().all():
            return np.full(self.width, np.nan)
        eigenvalues = torch.linalg.eigvalsh(gram).flip(0)
        # Below this level they are rounding of the Gram matrix.
        floor = self.width * torch.finfo(self.gram.dtype).eps * eigenvalues[0].abs()
        values = torch.where(eigenvalues > floor, eigenvalues, 0.0).sqrt()
        result: np.ndarray = values.numpy()
        return result

    def similarity(self) -> float:
        """Mean cosine between two different tokens; NaN with fewer than two."""
        n = float(self.nonzero)
        square = float(self.units.double().square().sum())
        return (square - n) / (n * (n - 1)) if n > 1 else float("nan")

    def dormant_share(self, threshold: float) -> float:
        """Share of units whose mean size is at most `threshold` times the layer's mean size.

        sokar2023, Def. 3.1: tau-dormant neurons. 1 if all units are silent.
        """
        sizes = self.sizes.double()
        if not bool(sizes.isfinite().all()):
            return float("nan")
        return float((sizes <= threshold * sizes.mean()).double().mean())
