"""One array of a run as it grows: whole chunks on disk, the unfinished last one also in memory."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr

from rankscope.store.files import replace_file
from rankscope.store.layout import Layout


def read_rows(group: zarr.Group, name: str, *, start: int = 0) -> np.ndarray:
    """The committed rows of an array from `start` on."""
    array = group[name]
    assert isinstance(array, zarr.Array)
    return np.asarray(array[start:])


@dataclass(frozen=True)
class Column:
    """An array with its rows so far; `tail` is the chunk that the next row falls into."""

    folder: Path
    layout: Layout
    tail: np.ndarray

    @classmethod
    def new(cls, folder: Path, layout: Layout) -> "Column":
        """One that holds nothing; chunks that are never written read as fill."""
        cls.clear(folder)  # a commit that failed may have left its chunk
        return cls(folder, layout, layout.blank(layout.chunk_rows))

    @classmethod
    def read(cls, folder: Path, layout: Layout, group: zarr.Group, length: int) -> "Column":
        """One of `length` committed rows."""
        tail = layout.blank(layout.chunk_rows)
        unfinished = length % layout.chunk_rows
        tail[:unfinished] = read_rows(group, folder.name, start=length - unfinished)
        return cls(folder, layout, tail)

    def with_rows(self, start: int, rows: np.ndarray, *, durable: bool) -> "Column":
        """Write `rows` from row `start` on, each chunk they reach in one step.

        The tail of `self` stays valid up to `start`: after a failure they can be written again.
        """
        self.folder.mkdir(exist_ok=True)
        size, tail, written = self.layout.chunk_rows, self.tail, 0
        while written < len(rows):
            index, offset = divmod(start + written, size)
            taken = rows[written : written + size - offset]
            if offset == 0:
                tail = self.layout.blank(size)
            tail[offset : offset + len(taken)] = taken
            tail[offset + len(taken) :] = self.layout.fill
            if tail.size:
                path = self.folder / self.layout.chunk_name(index)
                replace_file(path, self.layout.encode(tail), durable=durable)
            written += len(taken)
        return Column(self.folder, self.layout, tail)

    @staticmethod
    def clear(folder: Path) -> None:
        """Remove the chunks in `folder`, and the folder if nothing else is in it."""
        for path in folder.glob("c.[0-9]*"):
            path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()

    def remove_beyond(self, length: int) -> None:
        """Remove chunks of which no row is committed, and pieces of files."""
        for path in self.folder.glob("c.[0-9]*"):
            if (
                path.suffix == ".partial"
                or int(path.name.split(".")[1]) * self.layout.chunk_rows >= length
            ):
                path.unlink()
