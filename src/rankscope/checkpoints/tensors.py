"""Tensors of a checkpoint: what is stored, and how it is read when it is wanted."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.files import File

MOST_TENSORS = 100_000  # of one file
NUMBERS_AT_ONCE = 2**22  # of a tensor that is computed from what is stored
# A fresh page costs a fault. NumPy asks for huge ones where it allocates this much or more.
HUGE_PAGE, LARGE = 2**21, 2**22


@dataclass(frozen=True)
class StoredTensor:
    """Description of one tensor of a checkpoint.

    dtype: of the tensor that is read; that on disk is in `format`.
    bytes: number of bytes on disk, with those of its parts.
    note: how the numbers are computed from those on disk; empty if they are the same.
    tied_to: name under which the same memory is stored first.
    part_of: name of the tensor whose numbers need this one, such as a scale.
    refusal: why the tensor is not read; empty if it can be.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    format: str
    note: str = ""
    tied_to: str | None = None
    part_of: str | None = None
    refusal: str = ""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def bytes_in_memory(self) -> int:
        """Number of bytes of the tensor that is read; a quantised one takes up to 30 times more."""
        return math.prod(self.shape) * self.dtype.itemsize


@runtime_checkable
class Loader(Protocol):
    """A way to read one tensor from disk into memory of its own."""

    def load(self) -> Shaped[Tensor, "..."]:
        """Read the whole tensor."""

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        """Read a range of the first axis, and no more of the file than it needs."""


@dataclass(frozen=True)
class Range:
    """A dense tensor in consecutive bytes of a file, its last axis fastest."""

    file: File
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Shaped[Tensor, "..."]:
        return self._read(self.offset, self.shape)

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        return self._read(self.offset + start * row, (stop - start, *self.shape[1:]))

    def _read(self, offset: int, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape) * self.dtype.itemsize
        try:
            buffer = room_for(count)
        except MemoryError:
            raise ValueError(
                f"{self.file.name} has a tensor of {count / 1e9:.3g} GB, which does not fit into "
                "memory; scan it where there is more"
            ) from None
        if count:
            self.file.read_into(memoryview(buffer.numpy().data), offset)
        return buffer.view(self.dtype).reshape(shape)


def row_ranges(tensor: Tensor) -> Iterator[slice]:
    """Yield ranges of the first axis, small enough that what is computed of one needs no room."""
    step = max(1, NUMBERS_AT_ONCE // max(1, math.prod(tensor.shape[1:])))
    for start in range(0, tensor.shape[0], step):
        yield slice(start, min(start + step, tensor.shape[0]))


def room_for(count: int) -> Tensor:
    """Return `count` uninitialised bytes; many begin at a huge page, so that all can lie in such.

    Reading into small pages takes several times as long, most of it faults.
    """
    if count < LARGE:
        return torch.empty(count, dtype=torch.uint8)
    wider = np.empty(count + HUGE_PAGE, np.uint8)
    start = -wider.ctypes.data % HUGE_PAGE
    return torch.from_numpy(wider[start : start + count])


@dataclass(frozen=True)
class Strided:
    """A tensor that is a strided view of a storage, as in a file of `torch.save`."""

    storage: Range  # one axis
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def load(self) -> Shaped[Tensor, "..."]:
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=self.storage.dtype)
        last = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        entries = self.storage.load_rows(self.offset, self.offset + last + 1)
        return entries.as_strided(self.shape, self.strides)

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        first = self.offset + start * self.strides[0]
        return Strided(self.storage, first, (stop - start, *self.shape[1:]), self.strides).load()
