"""Files of safetensors, with checks of our own before a byte of a tensor is read."""

import math
import struct
from typing import Any

import torch

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.files import File, read_bytes
from rankscope.checkpoints.json_text import read_json
from rankscope.checkpoints.tensors import MOST_TENSORS, Range, StoredTensor

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
# Formats that torch has no plain type for, by bits per number.
OTHERS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
MOST_AXES = 16


def open_safetensors(file: File) -> Checkpoint:
    """Return the tensors of a safetensors file, whose bytes must be named once, with no gap."""
    if file.size < 8:
        raise ValueError(f"{file.name} is damaged and cannot be read: it has {file.size} bytes")
    (length,) = struct.unpack("<Q", read_bytes(file, 0, 8))
    if length > file.size - 8:
        raise ValueError(
            f"{file.name} is damaged and cannot be read as safetensors: its header should have "
            f"{length} bytes, the file has {file.size}; fetch it again"
        )
    header = read_json(file, 8, length)
    metadata = header.pop("__metadata__", {})
    if len(header) > MOST_TENSORS:
        raise ValueError(f"{file.name} is damaged: its header lists {len(header)} tensors")
    data = 8 + length
    ends: list[tuple[int, int, str]] = []
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Range] = {}
    for name, entry in header.items():
        dtype, shape, begin, end = _entry(file, name, entry)
        ends.append((begin, end, name))
        plain = DTYPES.get(dtype)
        refusal = "" if plain else f"numbers of format {dtype} have no reader"
        shown = str(plain).removeprefix("torch.") if plain else dtype
        tensors[name] = StoredTensor(
            name, shape, plain or torch.uint8, end - begin, shown, refusal=refusal
        )
        if plain is not None:
            loaders[name] = Range(file, data + begin, shape, plain)
    _check_layout(file, ends, file.size - data)
    strings = metadata if isinstance(metadata, dict) else {}
    return Checkpoint(file.name, tensors, loaders, {"safetensors": strings})


def _entry(file: File, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Return type, shape, begin and end of a tensor, after all that can be checked of it alone."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, name, "expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not (dtype in DTYPES or dtype in OTHERS):
        raise _damaged(file, name, f"unknown type {str(dtype)[:20]!r}")
    if not _sizes(shape) or len(shape) > MOST_AXES:
        raise _damaged(file, name, "its shape is no list of sizes")
    if not _sizes(offsets) or len(offsets) != 2:
        raise _damaged(file, name, "its data_offsets are no two positions")
    bits = DTYPES[dtype].itemsize * 8 if dtype in DTYPES else OTHERS[dtype]
    count = math.prod(shape)
    if (offsets[1] - offsets[0]) * 8 != count * bits:
        raise _damaged(
            file,
            name,
            f"its {dtype} numbers of shape {tuple(shape)} do not fill bytes {offsets[0]} to "
            f"{offsets[1]}",
        )
    return dtype, tuple(shape), offsets[0], offsets[1]


def _sizes(value: Any) -> bool:
    """Tell whether a value is a list of whole numbers that a file can have."""
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**50 for v in value)


def _check_layout(file: File, ends: list[tuple[int, int, str]], size: int) -> None:
    """Raise ValueError unless the tensors fill the data of `size` bytes without overlap or gap."""
    position = 0
    for begin, end, name in sorted(ends):
        if begin != position:
            kind = "overlaps another tensor" if begin < position else "follows a gap"
            raise _damaged(file, name, f"it {kind} at byte {begin} of the data")
        position = end
    if position != size:
        raise ValueError(
            f"{file.name} is damaged: its tensors take {position} bytes and {size} follow the "
            "header; fetch it again"
        )


def _damaged(file: File, name: str, reason: str) -> ValueError:
    return ValueError(f"{file.name} is damaged: tensor {name[:80]!r}: {reason}")
