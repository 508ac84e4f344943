"""Memory that another process can read: one block per buffer, each tensor at its offset."""

import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 64


@dataclass(frozen=True)
class Slot:
    """Position of a tensor in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Layout:
    """Slots of a block, size of a block in bytes, and number of blocks."""

    slots: Mapping[str, Slot]
    block_bytes: int
    blocks: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], *, blocks: int) -> "Layout":
        """Return the layout of `blocks` copies of `tensors`."""
        slots: dict[str, Slot] = {}
        end = 0
        for name, tensor in tensors.items():
            slots[name] = Slot(end, tuple(tensor.shape), tensor.dtype)
            size = tensor.dtype.itemsize * math.prod(tensor.shape)
            end = -(-(end + size) // ALIGNMENT) * ALIGNMENT
        block_bytes = -(-max(end, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        return cls(slots, block_bytes, blocks)


class SharedMemory:
    """Anonymous memory behind a file descriptor, freed when the last process closes it."""

    def __init__(self, descriptor: int, layout: Layout) -> None:
        self.descriptor = descriptor
        self.layout = layout
        self._map = mmap.mmap(descriptor, layout.block_bytes * layout.blocks)
        self._pinned = False

    @classmethod
    def create(cls, layout: Layout) -> "SharedMemory":
        descriptor = os.memfd_create("rankscope")
        os.ftruncate(descriptor, layout.block_bytes * layout.blocks)
        return cls(descriptor, layout)

    def tensors(self, block: int) -> dict[str, Tensor]:
        """Return the tensors of one block, which lie in the shared memory itself."""
        start = block * self.layout.block_bytes
        return {
            name: self._tensor(start + slot.offset, slot)
            for name, slot in self.layout.slots.items()
        }

    def pin(self) -> None:
        """Let a GPU copy into the memory while the host goes on."""
        whole = torch.frombuffer(self._map, dtype=torch.uint8)
        status = torch.cuda.cudart().cudaHostRegister(whole.data_ptr(), whole.numel(), 0)
        if int(status) != 0:
            raise OSError(f"the GPU driver refused to pin memory (error {int(status)})")
        self._pinned = True

    def close(self) -> None:
        if self._pinned:
            whole = torch.frombuffer(self._map, dtype=torch.uint8)
            torch.cuda.cudart().cudaHostUnregister(whole.data_ptr())
        os.close(self.descriptor)

    def _tensor(self, offset: int, slot: Slot) -> Tensor:
        count = math.prod(slot.shape)
        if count == 0:
            return torch.empty(slot.shape, dtype=slot.dtype, device="cpu")
        flat = torch.frombuffer(self._map, dtype=slot.dtype, count=count, offset=offset)
        return flat.reshape(slot.shape)
