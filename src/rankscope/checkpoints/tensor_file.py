"""A safetensors file written tensor by tensor, from places none of which holds them all."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from rankscope.checkpoints.safetensors import DTYPES

NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Entry(NamedTuple):
    """Type, shape and number of bytes of a stored tensor."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Source(NamedTuple):
    """Tensors of one place.

    read: yields the bytes of a tensor; called once for each, in the order of `in_file_order`.
    """

    entries: Mapping[str, Entry]
    read: Callable[[str], Iterable[bytes | memoryview]]


def source_of(tensors: Mapping[str, Tensor]) -> Source:
    """Return tensors of this process as a source."""
    entries = {
        name: Entry(NAMES[tensor.dtype], tuple(tensor.shape), tensor.nbytes)
        for name, tensor in tensors.items()
    }
    return Source(entries, lambda name: (bytes_of(tensors[name]),))


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor's values, on the host."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def in_file_order(entries: Mapping[str, Entry]) -> list[str]:
    """Return the names by falling size of a number, which keeps numbers aligned, then by name."""

    def key(name: str) -> tuple[int, str]:
        return -DTYPES[entries[name].dtype].itemsize, name

    return sorted(entries, key=key)


def write(path: Path, sources: Iterable[Source], *, metadata: Mapping[str, str]) -> None:
    """Write all tensors of all sources into one file."""
    sources = list(sources)
    source_by_name = {name: source for source in sources for name in source.entries}
    entries = {name: source.entries[name] for name, source in source_by_name.items()}
    order, end = in_file_order(entries), 0
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    for name in order:
        entry = entries[name]
        offsets = [end, end + entry.bytes]
        header[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": offsets}
        end += entry.bytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in order:
            for chunk in source_by_name[name].read(name):
                file.write(chunk)


def replace_in_header(path: Path, old: str, new: str) -> None:
    """Replace the first text of the header that is `old` by another of the same length."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size)
        changed = header.replace(f'"{old}"'.encode(), f'"{new}"'.encode(), 1)
        assert len(changed) == size
        file.seek(8)
        file.write(changed)
