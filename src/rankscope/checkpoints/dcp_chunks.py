"""Tensors of a distributed checkpoint: boxes in several files, joined when they are read."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.files import Part, read_bytes
from rankscope.checkpoints.torch_files import loader, zip_content
from rankscope.checkpoints.torch_pickles import Described

ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and the part of a file that holds it as a file of its own."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    part: Part

    @property
    def count(self) -> int:
        return math.prod(self.sizes)

    def read(self, dtype: torch.dtype, fqn: str) -> Shaped[Tensor, "..."]:
        """Read the box, which must have the shape and type that the metadata names."""
        if read_bytes(self.part, 0, min(4, self.part.size)) != ZIP:
            raise ValueError(
                f"{self.part.name} does not hold {fqn!r} as torch.save writes it: it is damaged, "
                "or saved in another format"
            )
        content, place = zip_content(self.part)
        if not isinstance(content, Described):
            raise ValueError(f"{self.part.name} is damaged: no tensor where {fqn!r} should be")
        tensor = loader(content, place).load()
        if tuple(tensor.shape) != self.sizes or tensor.dtype != dtype:
            raise ValueError(
                f"{self.part.name} is damaged: {fqn!r} should have a part of shape {self.sizes} "
                f"and type {dtype}, and has {tuple(tensor.shape)} and {tensor.dtype}"
            )
        return tensor


@dataclass(frozen=True)
class Chunks:
    """A tensor in several boxes, which fill it without overlap."""

    fqn: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[Chunk, ...]

    def load(self) -> Shaped[Tensor, "..."]:
        return self.load_rows(0, self.shape[0]) if self.shape else self._only()

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        if self._overlaps:
            raise ValueError(f"the metadata are damaged: two parts of {self.fqn!r} overlap")
        if len(self.chunks) == 1:
            return self._only()[start:stop]
        rows = torch.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        for chunk in self.chunks:
            first = max(start, chunk.offsets[0])
            last = min(stop, chunk.offsets[0] + chunk.sizes[0])
            if first >= last:
                continue
            box = chunk.read(self.dtype, self.fqn)
            ends = zip(chunk.offsets[1:], chunk.sizes[1:], strict=True)
            target = (
                slice(first - start, last - start),
                *(slice(offset, offset + size) for offset, size in ends),
            )
            rows[target] = box[first - chunk.offsets[0] : last - chunk.offsets[0]]
        return rows

    def _only(self) -> Tensor:
        return self.chunks[0].read(self.dtype, self.fqn)

    @cached_property
    def _overlaps(self) -> bool:
        """Whether two boxes overlap; their sizes add up already."""
        starts = np.array([chunk.offsets for chunk in self.chunks])
        ends = starts + np.array([chunk.sizes for chunk in self.chunks])
        return any(
            ((starts[i] < ends[i + 1 :]) & (starts[i + 1 :] < ends[i])).all(axis=1).any()
            for i in range(len(self.chunks) - 1)
        )
