"""Quantised tensors of GGUF: rows of blocks, dequantised by the `gguf` package."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.files import File

NUMBERS_AT_ONCE = 2**24


def block_sizes(kind: int) -> tuple[int, int] | None:
    """Return the numbers and bytes of a block of a type; None if the package does not know it."""
    return GGML_QUANT_SIZES.get(kind)  # type: ignore[call-overload, no-any-return]


def type_name(kind: int) -> str:
    """Return the name of a type, such as Q4_K."""
    return GGMLQuantizationType(kind).name


@cache
def has_reader(kind: int) -> bool:
    """Tell whether the package dequantises a type; some are of intermediate results only."""
    blocks = np.zeros((1, GGML_QUANT_SIZES[GGMLQuantizationType(kind)][1]), np.uint8)
    try:
        dequantize(blocks, GGMLQuantizationType(kind))
    except NotImplementedError:
        return False
    return True


@dataclass(frozen=True)
class Blocks:
    """A quantised tensor of a file, read as float32."""

    file: File
    offset: int
    shape: tuple[int, ...]
    kind: int

    def load(self) -> Shaped[Tensor, "..."]:
        return self._read(0, math.prod(self.shape[:-1])).reshape(self.shape)

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        if len(self.shape) == 1:
            return self.load()[start:stop]
        inner = math.prod(self.shape[1:-1])
        rows = self._read(start * inner, stop * inner)
        return rows.reshape(stop - start, *self.shape[1:])

    def _read(self, start: int, stop: int) -> Tensor:
        kind = GGMLQuantizationType(self.kind)
        numbers, size = GGML_QUANT_SIZES[kind]
        row = self.shape[-1] // numbers * size
        result = torch.empty(stop - start, self.shape[-1])
        step = max(1, NUMBERS_AT_ONCE // max(1, self.shape[-1]))  # rows at a time
        for first in range(start, stop, step):
            last = min(stop, first + step)
            data = np.empty((last - first, row), dtype=np.uint8)
            self.file.read_into(memoryview(data.reshape(-1).data), self.offset + first * row)
            with np.errstate(all="ignore"):  # a damaged scale may overflow
                values = dequantize(data, kind)
            result[first - start : last - start] = torch.from_numpy(np.asarray(values))
        return result
