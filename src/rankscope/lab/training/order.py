"""Which samples a step sees, and what noise: functions of seed and step, so nothing is to be saved
when a training stops and nothing to be restored when it goes on."""

from abc import ABC, abstractmethod
from hashlib import sha256
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """A generator on the CPU of its own for every purpose and index."""
    digest = sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class SampleOrder(ABC):
    """Every epoch a new permutation of the samples; the incomplete batch at its end is dropped."""

    def __init__(self, samples: int, batch: int, *, seed: int) -> None:
        if batch > samples:
            raise ValueError(f"a batch of {batch} needs as many training samples, got {samples}")
        self._samples = samples
        self._batch = batch
        self._seed = seed
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Int[Tensor, " batch"]:
        """The samples of a step, whichever step is asked for first."""
        epoch, position = divmod(step, self._samples // self._batch)
        if epoch != self._epoch:
            self._permutation = self.permutation(generator(self._seed, "order", epoch))
            self._epoch = epoch
        return self._permutation[position * self._batch : (position + 1) * self._batch]

    @abstractmethod
    def permutation(self, drawn: torch.Generator) -> Int[Tensor, " samples"]:
        """In which order an epoch sees them."""


class Order(SampleOrder):
    """For samples that are all at hand."""

    def permutation(self, drawn: torch.Generator) -> Int[Tensor, " samples"]:
        return torch.randperm(self._samples, generator=drawn)


class BlockOrder(SampleOrder):
    """For samples that are read in blocks: batches that follow each other share them.

    Every epoch the blocks are permuted, then the samples inside each `window` of successive blocks.
    Where a window has the samples of a batch, a batch lies in at most two windows. Inside a batch
    samples stand block by block, so that each of its slices, one per process, needs few of them.
    blocks: how many samples each has, in the order in which samples are counted.
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
        # Samples in the order of their blocks: a sample's place here tells its block's turn.
        samples = torch.arange(int(ends[-1])) + (firsts - ends[:-1]).repeat_interleave(sizes)
        edges = [*ends[: -1 : self._window].tolist(), int(ends[-1])]
        places = [
            start + torch.randperm(end - start, generator=drawn) for start, end in pairwise(edges)
        ]
        batches = torch.cat(places).split(self._batch)
        return samples[torch.cat([batch.sort().values for batch in batches])]
