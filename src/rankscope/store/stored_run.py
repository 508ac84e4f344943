"""Reading of a run: the chunks that a selection touches, each checked before it is used."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankscope.store.chunk import CHUNK_BYTES, Damage, Place, checksum
from rankscope.store.metadata import ROOT, ROOT_BYTES, ArrayFormat, Root, parse_root
from rankscope.store.shard import Shard
from rankscope.store.source import File, Folder, Source

Index = tuple[int, ...]
Positions = Any  # a range, or an array of integers


class Absent(Damage):
    """A file that was committed and is not there."""


class DamagedChunk(ValueError):
    """Values that cannot be read. `rows` are positions along the first dimension."""

    def __init__(
        self, source: Source, array: ArrayFormat, rows: range, *, file: str, why: str
    ) -> None:
        where = f", number {rows[0]} to {rows[-1]} along {array.dims[0]!r}" if rows else ""
        super().__init__(
            f"{source} is damaged: {array.name!r}{where}, cannot be read ({file}: {why}); restore "
            f"the file, or see what else is damaged with: rankscope check {source}"
        )
        self.array, self.rows, self.file, self.why = array, rows, file, why


def damaged(path: object, damage: Damage) -> ValueError:
    """Return the error for a run whose root cannot be used."""
    return ValueError(
        f"{path} is not a run, or damaged: {damage}; restore it, or give another path"
    )


@dataclass
class StoredRun:
    """The files of a run and the root zarr.json as it was when the run was opened.

    lenient: in a run without checksums, any chunk may be absent, not only those of scalars.
    """

    source: Source
    root: Root
    lenient: bool = False

    @classmethod
    def at(cls, source: Source, *, lenient: bool = False) -> "StoredRun":
        """Read the root; Damage if rankscope did not write it, Absent if there is none."""
        root = _read_root(source)
        if isinstance(source, Folder):
            source = replace(source, attrs=root.attrs)
        return cls(source, root, lenient)

    def read(self, name: str, *selection: Any) -> np.ndarray:
        """Return the selected values of an array; ValueError names the file that is damaged."""
        array = self.root.arrays[name]
        try:
            return StoredArray(self, array).read(selection)
        except DamagedChunk:
            # The writer may have put the values into other files since the run was opened.
            if not self._moved(array):
                raise
            return StoredArray(self, self.root.arrays[name]).read(selection)

    def _moved(self, before: ArrayFormat) -> bool:
        """Take the array's files from the present root; True if they are others than before."""
        name = before.name
        try:
            now = _read_root(self.source).arrays.get(name)
        except Damage:
            return False
        if now is None or now.shape[1:] != before.shape[1:] or now.shape[:1] < before.shape[:1]:
            raise ValueError(
                f"{self.source} has fewer rows of {name!r} than when it was opened; open it again"
            )
        self.root.arrays[name] = replace(now, shape=before.shape)
        return now.file_shape != before.file_shape


def _read_root(source: Source) -> Root:
    file = source.open(ROOT, most_bytes=ROOT_BYTES)
    if file is None:
        raise Absent(f"there is no {ROOT}")
    with file:
        return parse_root(file.read())


@dataclass(frozen=True)
class Part:
    """The share of one chunk, along one dimension, in a selection."""

    chunk: int
    inside: Any
    target: Any


@dataclass
class StoredArray:
    """One array of a run. The shard that was read last stays open."""

    run: StoredRun
    format: ArrayFormat
    _shard: tuple[str, Shard] | None = None

    def read(self, selection: Sequence[Any] = ()) -> np.ndarray:
        """Return the values at an integer, a slice or an array of integers per dimension."""
        try:
            return self._read(selection)
        finally:
            self.close()

    def close(self) -> None:
        """Close the shard that was read last."""
        if self._shard is not None:
            self._shard[1].file.close()
            self._shard = None

    def _read(self, selection: Sequence[Any]) -> np.ndarray:
        shape = self.format.shape
        keys = (*selection, *(slice(None) for _ in shape[len(selection) :]))
        picked = [_positions(key, size) for key, size in zip(keys, shape, strict=True)]
        values: np.ndarray | None = None
        for combination in self._combinations(picked):
            chunk = self.chunk(tuple(part.chunk for part in combination))
            if values is None:  # not before a chunk is there: the declared shape may be a lie
                values = self._empty([len(positions) for positions in picked])
            target = _outer([part.target for part in combination], values.shape)
            values[target] = chunk[_outer([part.inside for part in combination], chunk.shape)]
        if values is None:
            values = self._empty([len(positions) for positions in picked])
        return values[(*(slice(None) if _is_many(key) else 0 for key in keys), ...)]

    def _combinations(self, picked: Sequence[Positions]) -> Iterator[tuple[Part, ...]]:
        """Yield the share of each chunk; rows one by one, since a lie may declare very many."""
        sizes = self.format.chunk.shape
        if not sizes:
            yield ()
            return
        rest = [list(_parts(*pair)) for pair in zip(picked[1:], sizes[1:], strict=True)]
        for first in _parts(picked[0], sizes[0]):
            yield from itertools.product([first], *rest)

    def chunk(self, index: Index) -> np.ndarray:
        """Return one chunk; DamagedChunk if it is not what was committed."""
        array = self.format
        file_index = tuple(i // n for i, n in zip(index, array.chunks_per_file, strict=True))
        name = f"{array.name}/{array.file_name(file_index)}"
        rows = array.rows(index)
        try:
            data = self._data(index, name)
            return array.chunk.decode(data, Place(array.name, index, len(rows)))
        except Absent as absent:
            if self._may_be_absent():
                return np.full(array.chunk.shape, array.fill, array.dtype)
            why = str(absent)
        except Damage as damage:
            why = str(damage)
        except OSError as failure:
            why = f"it cannot be read: {failure.strerror}"
        raise DamagedChunk(self.run.source, array, rows, file=name, why=why) from None

    def _data(self, index: Index, name: str) -> bytes:
        if not self.format.sharded:
            with self._file(name) as file:
                data = file.read()
            listed = self.run.root.checksums
            if listed and listed.get(name) != checksum(data):
                raise Damage("checksum differs")
            return data
        if self._shard is None or self._shard[0] != name:
            self.close()
            self._shard = (name, Shard.of(self._file(name), self.format))
        return self._shard[1].read(index)

    def _file(self, name: str) -> File:
        file = self.run.source.open(name, most_bytes=self.format.file_bytes)
        if file is None:
            raise Absent("it is missing")
        return file

    def _may_be_absent(self) -> bool:
        """Return whether a chunk that is not there was never written."""
        if self.run.root.checked or self.format.nbytes > CHUNK_BYTES:
            return False
        return self.run.lenient or self.format.is_scalar

    def _empty(self, shape: Sequence[int]) -> np.ndarray:
        try:
            return np.empty(shape, self.format.dtype)
        except (MemoryError, ValueError):
            raise ValueError(
                f"{self.run.source} declares {self.format.name!r} of shape {tuple(shape)}, more "
                "than fits in memory; select a part of it"
            ) from None


def _is_many(key: Any) -> bool:
    return isinstance(key, slice | np.ndarray)


def _positions(key: Any, size: int) -> Positions:
    if not _is_many(key):
        return range(size)[int(key) : int(key) + 1 or None]
    if isinstance(key, np.ndarray):
        return np.where(key < 0, key + size, key)
    picked = range(size)[key]
    return picked if picked.step > 0 else np.array(picked)


def _parts(positions: Positions, size: int) -> Iterator[Part]:
    """Yield the chunks of `size` positions that hold `positions`."""
    if isinstance(positions, range):
        if not positions:
            return
        start, step = positions.start, positions.step
        for chunk in range(start // size, positions[-1] // size + 1):
            low = max(0, -(-(chunk * size - start) // step))
            high = min(len(positions), -(-((chunk + 1) * size - start) // step))
            if low < high:
                first = start + low * step - chunk * size
                last = start + (high - 1) * step - chunk * size
                yield Part(chunk, slice(first, last + 1, step), slice(low, high))
        return
    chunks = positions // size
    for chunk in np.unique(chunks).tolist():
        target = np.flatnonzero(chunks == chunk)
        yield Part(chunk, positions[target] - chunk * size, target)


def _outer(keys: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return an index of the outer product of `keys`."""
    if all(isinstance(key, slice) for key in keys):
        return tuple(keys)
    return np.ix_(*(np.arange(n)[key] for key, n in zip(keys, shape, strict=True)))
