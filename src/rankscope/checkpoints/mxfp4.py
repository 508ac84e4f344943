"""Numbers of MXFP4: blocks of 32 with four bits each, and one power of two for a block."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.tensors import Loader, row_ranges

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Mxfp4:
    """Numbers of four bits, two to a byte with the low half first, times a power of two each."""

    blocks: Loader
    exponents: Loader

    def load(self) -> Shaped[Tensor, "..."]:
        return _from_mxfp4(self.blocks.load(), self.exponents.load())

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        return _from_mxfp4(
            self.blocks.load_rows(start, stop), self.exponents.load_rows(start, stop)
        )


def _from_mxfp4(blocks: Tensor, exponents: Tensor) -> Tensor:
    table = torch.tensor([*FP4, *(-x for x in FP4)])
    stacked = blocks.flatten(0, -3) if blocks.ndim > 2 else blocks[None]
    powers = exponents.reshape(stacked.shape[:-1]).to(torch.int32) - 127
    W = torch.empty(*stacked.shape, 2)
    for rows in row_ranges(stacked):
        pairs = torch.stack([stacked[rows] & 15, stacked[rows] >> 4], dim=-1)
        W[rows] = torch.ldexp(table[pairs.int()], powers[rows, :, None, None])
    return W.reshape(*blocks.shape[:-2], -1)
