"""Columns: the growing arrays of a run, with the unfinished last chunk also in memory."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr

from rankscope.store.files import replace_file
from rankscope.store.layout import Layout


def read_rows(
    group: zarr.Group, name: str, *, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """Read the committed rows of an array from `start` on, up to `stop` if given."""
    array = group[name]
    assert isinstance(array, zarr.Array)
    return np.asarray(array[start:stop])


@dataclass(frozen=True)
class Column:
    """A growing array; `tail` is the chunk that the next row falls into."""

    folder: Path
    layout: Layout
    tail: np.ndarray

    @classmethod
    def new(cls, folder: Path, layout: Layout) -> "Column":
        """Return a column without rows; chunks that are never written read as fill."""
        cls.clear(folder)  # a commit that failed may have left its chunk
        return cls(folder, layout, layout.blank(layout.chunk_rows))

    @classmethod
    def read(cls, folder: Path, layout: Layout, group: zarr.Group, length: int) -> "Column":
        """Return the column of the first `length` committed rows."""
        tail = layout.blank(layout.chunk_rows)
        unfinished = length % layout.chunk_rows
        tail[:unfinished] = read_rows(group, folder.name, start=length - unfinished, stop=length)
        return cls(folder, layout, tail)

    def with_rows(self, start: int, rows: np.ndarray, *, durable: bool) -> "Column":
        """Write `rows` from row `start` on, and return the column with them.

        Each chunk is replaced in one step. After a failure, `self` can write the rows again.
        """
        self.folder.mkdir(exist_ok=True)
        size, tail, written = self.layout.chunk_rows, self.tail, 0
        while written < len(rows):
            index, offset = divmod(start + written, size)
            part = rows[written : written + size - offset]
            if offset == 0:
                tail = self.layout.blank(size)
            tail[offset : offset + len(part)] = part
            tail[offset + len(part) :] = self.layout.fill
            if tail.size:
                path = self.folder / self.layout.chunk_name(index)
                replace_file(path, self.layout.encode(tail), durable=durable)
            written += len(part)
        return Column(self.folder, self.layout, tail)

    @staticmethod
    def clear(folder: Path) -> None:
        """Remove the chunks in `folder`, and the folder if it is empty then."""
        for path in folder.glob("c.[0-9]*"):
            path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()

    def remove_beyond(self, length: int) -> None:
        """Remove chunks without a committed row, and partial files."""
        for path in self.folder.glob("c.[0-9]*"):
            if (
                path.suffix == ".partial"
                or int(path.name.split(".")[1]) * self.layout.chunk_rows >= length
            ):
                path.unlink()
