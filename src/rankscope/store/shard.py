"""Shards: files of several chunks, in Zarr's codec sharding_indexed.

The chunks of a file follow each other. Its end is an index of their offsets and lengths, followed
by the CRC32C of the index. One matrix over time needs only its own chunks of each file.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rankscope.store.chunk import CHECKSUM_BYTES, Damage, with_checksum, without_checksum
from rankscope.store.metadata import ArrayFormat
from rankscope.store.source import File

Index = tuple[int, ...]

ENTRY = struct.Struct("<QQ")
ABSENT = (2**64 - 1, 2**64 - 1)


@dataclass(frozen=True)
class Shard:
    """A shard that is open for reading."""

    file: File
    array: ArrayFormat
    index: np.ndarray

    @classmethod
    def of(cls, file: File, array: ArrayFormat) -> "Shard":
        """Read the index of the file; Damage if it is not whole."""
        try:
            return cls(file, array, _read_index(file, math.prod(array.chunks_per_file)))
        except BaseException:
            file.close()
            raise

    def read(self, index: Index) -> bytes:
        """Return the bytes of the chunk at `index` of the array."""
        inner = tuple(i % n for i, n in zip(index, self.array.chunks_per_file, strict=True))
        row = int(np.ravel_multi_index(inner, self.array.chunks_per_file))
        offset, size = map(int, self.index[row])
        if (offset, size) == ABSENT:
            raise Damage("a chunk is missing in it")
        if size > self.array.chunk.most_bytes:
            raise Damage(f"a chunk in it has {size} bytes")
        if offset >= 2**62:
            raise Damage("its index points outside")
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) != size:
            raise Damage("it is cut short")
        return data


def _read_index(file: File, count: int) -> np.ndarray:
    """Return the offsets and lengths of `count` chunks."""
    start = file.seek(0, 2) - count * ENTRY.size - CHECKSUM_BYTES
    if start < 0:
        raise Damage("it is cut short")
    file.seek(start)
    return np.frombuffer(without_checksum(file.read()), "<u8").reshape(count, 2)


def shard_bytes(chunks: Mapping[Index, bytes], grid: Index) -> bytes:
    """Return the file of `chunks`, by their index in the file's `grid`."""
    table, parts, offset = [], [], 0
    for index in inner_indices(grid):
        data = chunks.get(index)
        if data is None:
            table.append(ENTRY.pack(*ABSENT))
            continue
        table.append(ENTRY.pack(offset, len(data)))
        parts.append(data)
        offset += len(data)
    return b"".join([*parts, with_checksum(b"".join(table))])


def inner_indices(grid: Index) -> Iterator[Index]:
    """Yield the indices of a grid, the last dimension fastest."""
    return itertools.product(*(range(size) for size in grid))
