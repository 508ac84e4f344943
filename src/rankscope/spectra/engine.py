"""Gram matrices and their eigenvalues, by a linear algebra library."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Num
from torch import Tensor

ROWS, COLUMNS = 128, 384  # panels of a Gram matrix that stay in a core's cache


@runtime_checkable
class Engine(Protocol):
    """Gram matrices and their eigenvalues, by one library."""

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]: ...
    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]: ...
    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]: ...


class Torch:
    """Engine of torch, on any device."""

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]:
        """Return W W^T in float64; on the CPU only its lower half, which solvers read."""
        if W.device.type != "cpu":
            D = W.double()
            return D @ D.mT
        batch, m, _ = W.shape
        G = torch.zeros(batch, m, m, dtype=torch.float64, device=W.device)
        for index in range(batch):
            for D in panels(W[index]):
                for start in range(0, m, ROWS):
                    stop = min(start + ROWS, m)
                    G[index, start:stop, :stop].addmm_(D[start:stop], D[:stop].mT)
        return G

    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]:
        """Return the eigenvalues, ascending."""
        values: Tensor = torch.linalg.eigvalsh(G)
        return values

    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
        """Return the eigenvalues, ascending, and their vectors as columns."""
        values, vectors = torch.linalg.eigh(G)
        return values, vectors


def panels(W: Num[Tensor, "m n"]) -> Iterator[Float[Tensor, "m c"]]:
    """Yield W in float64, COLUMNS columns at a time, each panel in the memory of the one before.

    Memory that is new to the process would cost as much time as the copy. Columns that are
    contiguous stay so.
    """
    m, n = W.shape
    memory = torch.empty(m * min(n, COLUMNS), dtype=torch.float64, device=W.device)
    for block in torch.split(W, COLUMNS, dim=-1):
        place = memory[: block.numel()]
        is_tall = W.mT.is_contiguous()
        panel = place.view(block.shape[::-1]).mT if is_tall else place.view(block.shape)
        yield panel.copy_(block)
