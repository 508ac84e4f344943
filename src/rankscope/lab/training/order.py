"""The samples and the noise of each step, as functions of seed and step.

A checkpoint therefore need not save them.
"""

from abc import ABC, abstractmethod
from hashlib import sha256
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """Return a CPU generator that is different for every seed, purpose and index."""
    digest = sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class SampleOrder(ABC):
    """A new permutation of the samples every epoch, without the incomplete batch at its end."""

    def __init__(self, samples: int, batch: int, *, seed: int) -> None:
        if batch > samples:
            raise ValueError(f"a batch of {batch} needs as many training samples, got {samples}")
        self._samples, self._batch, self._seed = samples, batch, seed
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Int[Tensor, " batch"]:
        """Return the samples of a step; steps may be asked for in any order."""
        epoch, position = divmod(step, self._samples // self._batch)
        if epoch != self._epoch:
            self._permutation = self.permutation(generator(self._seed, "order", epoch))
            self._epoch = epoch
        return self._permutation[position * self._batch : (position + 1) * self._batch]

    @abstractmethod
    def permutation(self, drawn: torch.Generator) -> Int[Tensor, " samples"]:
        """Return the order of the samples in one epoch."""


class Order(SampleOrder):
    """A uniformly random order, for samples that are all in memory."""

    def permutation(self, drawn: torch.Generator) -> Int[Tensor, " samples"]:
        return torch.randperm(self._samples, generator=drawn)


class BlockOrder(SampleOrder):
    """A random order in which successive batches share blocks, for samples read in blocks.

    Every epoch permutes the blocks, then the samples inside each `window` of successive blocks.
    If a window holds at least one batch, a batch lies in at most two windows. A batch is sorted by
    block, so each process needs few blocks for its slice.
    blocks: the number of samples in each block, in the order in which samples are numbered.
    """

    def __init__(self, blocks: tuple[int, ...], batch: int, *, seed: int, window: int) -> None:
        if window < 1:
            raise ValueError(f"a window has at least one block, got {window}")
        super().__init__(sum(blocks), batch, seed=seed)
        self._blocks = torch.tensor(blocks)
        self._window = window

    def permutation(self, drawn: torch.Generator) -> Int[Tensor, " samples"]:
        order = torch.randperm(len(self._blocks), generator=drawn)
        sizes = self._blocks[order]
        firsts = (self._blocks.cumsum(0) - self._blocks)[order]
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        # Samples sorted by permuted block, so that a position here gives the block's turn.
        samples = torch.arange(int(ends[-1])) + (firsts - ends[:-1]).repeat_interleave(sizes)
        edges = [*ends[: -1 : self._window].tolist(), int(ends[-1])]
        places = [
            start + torch.randperm(end - start, generator=drawn) for start, end in pairwise(edges)
        ]
        batches = torch.cat(places).split(self._batch)
        return samples[torch.cat([batch.sort().values for batch in batches])]
