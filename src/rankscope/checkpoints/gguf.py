"""Files of GGUF, as llama.cpp reads them: the header is parsed here."""

import math
import struct
from typing import Any

import torch

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
    with needed_by(f"{header.file.name}, which is quantised,"):
        from rankscope.checkpoints.gguf_blocks import block_sizes

    sizes = block_sizes(kind)
    if sizes is None:
        raise ValueError(
            f"{header.file.name}: tensor {name[:80]!r} is of type {kind}, which the installed "
            "package gguf does not know; update it with pip install -U gguf"
        )
    numbers, size = sizes
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
    from rankscope.checkpoints.gguf_blocks import Blocks, has_reader, type_name

    shown = type_name(kind)
    note = f"dequantised from {shown}"
    refusal = "" if has_reader(kind) else f"{shown} has no reader in the package gguf"
    stored = StoredTensor(name, shape, torch.float32, size, shown, note=note, refusal=refusal)
    return stored, Blocks(file, offset, shape, kind)


class _Header:
    """The beginning of a file, read in windows and no further than its settings go."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.position = 0
        self._window, self._start = b"", 0
        self._items = 0

    def damaged(self, reason: str) -> ValueError:
        return ValueError(f"{self.file.name} is damaged and cannot be read as GGUF: {reason}")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if not self._start <= self.position <= end <= self._start + len(self._window):
            if end > self.file.size:
                raise self.damaged("it is cut short")
            size = min(max(count, WINDOW), self.file.size - self.position)
            self._window = read_bytes(self.file, self.position, size)
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
        if self.position + count > self.file.size:
            raise self.damaged("it is cut short")
        self.position += count
