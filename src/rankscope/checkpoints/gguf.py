"""Files of GGUF, as llama.cpp reads them: header parsed here, blocks dequantised by `gguf`."""

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.files import File, read_bytes
from rankscope.checkpoints.tensors import MOST_TENSORS, Loader, Range, StoredTensor
from rankscope.extras import needed_by

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 65_536
MOST_ITEMS = 2_000_000  # of all lists together; a vocabulary has a few hundred thousand
MOST_TEXT = 2**26  # bytes of a text
MOST_KEPT = 200  # characters of a text that is kept
MOST_AXES = 8
WINDOW = 2**20
ALIGNMENT = "general.alignment"

PLAIN = {
    0: ("F32", torch.float32),
    1: ("F16", torch.float16),
    24: ("I8", torch.int8),
    25: ("I16", torch.int16),
    26: ("I32", torch.int32),
    27: ("I64", torch.int64),
    28: ("F64", torch.float64),
    30: ("BF16", torch.bfloat16),
}
# Quantised types: name, numbers and bytes of a block.
QUANTISED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
NO_READER = ("Q8_1", "Q8_K")  # of intermediate results only
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
TEXT, LIST = 8, 9


def open_gguf(file: File) -> Checkpoint:
    """Return the tensors of a GGUF file; those of quantised types become float32."""
    header = _Header(file)
    header.take(4)
    version = header.number("I")
    if version not in VERSIONS:
        raise header.damaged(f"version {version} of the format; 2 and 3 are read")
    tensor_count, entry_count = header.number("Q"), header.number("Q")
    if tensor_count > MOST_TENSORS or entry_count > MOST_ENTRIES:
        raise header.damaged(f"it should have {tensor_count} tensors and {entry_count} settings")
    settings = {}
    for _ in range(entry_count):
        key = header.text()
        if key in settings:
            raise header.damaged(f"{key[:80]!r} is listed twice")
        settings[key] = header.value(header.number("I"))
    entries = [_entry(header) for _ in range(tensor_count)]
    alignment = settings.get(ALIGNMENT, 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        raise header.damaged(f"an alignment of {str(alignment)[:20]}")
    data = -(-header.position // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Loader] = {}
    _check_layout(header, entries, file.size - data, alignment)
    for name, shape, kind, offset, size in entries:
        tensors[name], loaders[name] = _tensor(file, name, shape, kind, data + offset, size)
    return Checkpoint(file.name, tensors, loaders, {"gguf": settings})


Entry = tuple[str, tuple[int, ...], int, int, int]


def _entry(header: "_Header") -> Entry:
    """Return name, shape, type, offset and bytes of a tensor."""
    name, axes = header.text(), header.number("I")
    if axes > MOST_AXES:
        raise header.damaged(f"tensor {name[:80]!r} has {axes} axes")
    shape = tuple(header.number("Q") for _ in range(axes))[::-1]  # the file has the last axis first
    kind, offset = header.number("I"), header.number("Q")
    if any(size >= 2**50 for size in (*shape, offset)):
        raise header.damaged(f"tensor {name[:80]!r} has an unreasonable size")
    if kind in PLAIN:
        return name, shape, kind, offset, math.prod(shape) * PLAIN[kind][1].itemsize
    if kind not in QUANTISED:
        raise header.damaged(f"tensor {name[:80]!r} is of an unknown type {kind}")
    _, numbers, size = QUANTISED[kind]
    if not shape or shape[-1] % numbers:
        raise header.damaged(f"rows of tensor {name[:80]!r} do not fill blocks of {numbers}")
    return name, shape, kind, offset, math.prod(shape) // numbers * size


def _check_layout(header: "_Header", entries: list[Entry], size: int, alignment: int) -> None:
    """Raise ValueError if tensors overlap, share a name or reach beyond the file."""
    end, names = 0, set()
    for name, _, _, offset, count in sorted(entries, key=lambda entry: entry[3:]):
        if name in names:
            raise header.damaged(f"tensor {name[:80]!r} is listed twice")
        names.add(name)
        if offset < end or offset % alignment:
            raise header.damaged(f"tensor {name[:80]!r} overlaps another")
        end = offset + count
        if end > size:
            raise header.damaged(f"tensor {name[:80]!r} reaches beyond the end; fetch it again")


def _tensor(
    file: File, name: str, shape: tuple[int, ...], kind: int, offset: int, size: int
) -> tuple[StoredTensor, Loader]:
    if kind in PLAIN:
        _, dtype = PLAIN[kind]
        shown = str(dtype).removeprefix("torch.")
        return StoredTensor(name, shape, dtype, size, shown), Range(file, offset, shape, dtype)
    shown = QUANTISED[kind][0]
    refusal = f"{shown} is no format of weights" if shown in NO_READER else ""
    stored = StoredTensor(
        name, shape, torch.float32, size, shown, note=f"dequantised from {shown}", refusal=refusal
    )
    return stored, Blocks(file, offset, shape, kind)


@dataclass(frozen=True)
class Blocks:
    """A quantised tensor: rows of blocks, dequantised by the `gguf` package."""

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
        with needed_by(f"{self.file.name}, which is quantised,"):
            from gguf import GGMLQuantizationType
            from gguf.quants import dequantize

        _, numbers, size = QUANTISED[self.kind]
        row = self.shape[-1] // numbers * size
        result = torch.empty(stop - start, self.shape[-1])
        step = max(1, 2**24 // max(1, self.shape[-1]))  # rows at a time
        for first in range(start, stop, step):
            last = min(stop, first + step)
            data = np.empty((last - first, row), dtype=np.uint8)
            self.file.read_into(memoryview(data.reshape(-1).data), self.offset + first * row)
            with np.errstate(all="ignore"):  # a damaged scale may overflow
                values = dequantize(data, GGMLQuantizationType(self.kind))
            result[first - start : last - start] = torch.from_numpy(np.asarray(values))
        return result


class _Header:
    """The beginning of a file, read in windows and no further than its settings go."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.position = 0
        self._window, self._start = b"", 0
        self._items = 0

    def damaged(self, reason: str) -> ValueError:
        return ValueError(f"{self._file.name} is damaged and cannot be read as GGUF: {reason}")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if not self._start <= self.position <= end <= self._start + len(self._window):
            if end > self._file.size:
                raise self.damaged("it is cut short")
            size = min(max(count, WINDOW), self._file.size - self.position)
            self._window = read_bytes(self._file, self.position, size)
            self._start = self.position
        piece = self._window[self.position - self._start : end - self._start]
        self.position = end
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        size = self.number("Q")
        if size > MOST_TEXT:
            raise self.damaged(f"a text of {size} bytes")
        return self.take(size).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Return a setting; lists are passed over."""
        if kind == TEXT:
            return self.text()[:MOST_KEPT]
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind != LIST:
            raise self.damaged(f"a setting of unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        self._items += 1 if inner in NUMBERS else count
        if self._items > MOST_ITEMS:
            raise self.damaged("its lists have too many items")
        if inner in NUMBERS:
            self.skip(count * struct.calcsize(f"<{NUMBERS[inner]}"))
        elif inner == TEXT:
            for _ in range(count):
                self.skip(self.number("Q"))
        else:
            raise self.damaged(f"a list of unknown type {inner}")
        return None

    def skip(self, count: int) -> None:
        if self.position + count > self._file.size:
            raise self.damaged("it is cut short")
        self.position += count
