"""Which samples a step sees, and what noise: functions of seed and step, so nothing is to be saved
when a training stops and nothing to be restored when it goes on."""

from hashlib import sha256

import torch
from jaxtyping import Int
from torch import Tensor


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """A generator on the CPU of its own for every purpose and index."""
    digest = sha256(f"{seed}/{purpose}/{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class Order:
    """Every epoch a new permutation; the incomplete batch at its end is dropped."""

    def __init__(self, samples: int, batch: int, *, seed: int) -> None:
        if batch > samples:
            raise ValueError(f"a batch of {batch} needs as many training samples, got {samples}")
        self.steps_per_epoch = samples // batch
        self._samples = samples
        self._batch = batch
        self._seed = seed
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Int[Tensor, " batch"]:
        """The samples of a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            drawn = generator(self._seed, "order", epoch)
            self._permutation = torch.randperm(self._samples, generator=drawn)
        return self._permutation[position * self._batch : (position + 1) * self._batch]
