"""Columns: the growing arrays of a run, with the unfinished last chunk also in memory."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankscope.store.files import replace_file
from rankscope.store.layout import Layout
from rankscope.store.stored_run import StoredRun


@dataclass(frozen=True)
class Column:
    """A growing array; `tail` is the chunk that the next row falls into.

    length: number of rows that are written.
    """

    folder: Path
    layout: Layout
    tail: np.ndarray
    length: int = 0

    @classmethod
    def new(cls, folder: Path, layout: Layout) -> "Column":
        """Return a column without rows."""
        cls.clear(folder)  # a commit that failed may have left its chunk
        return cls(folder, layout, layout.blank(layout.chunk_rows))

    @classmethod
    def read(cls, folder: Path, layout: Layout, run: StoredRun, length: int) -> "Column":
        """Return the column of the first `length` committed rows."""
        tail = layout.blank(layout.chunk_rows)
        unfinished = length % layout.chunk_rows
        tail[:unfinished] = run.read(folder.name, slice(length - unfinished, length))
        return cls(folder, layout, tail, length)

    def with_rows(self, start: int, rows: np.ndarray, *, durable: bool) -> "Column":
        """Write `rows` from row `start` on, and return the column with them.

        Rows between the last one written and `start` get the fill: every committed chunk is there.
        Each chunk is replaced in one step. After a failure, `self` can write the rows again.
        """
        self.folder.mkdir(exist_ok=True)
        if start > self.length:
            rows = np.concatenate([self.layout.blank(start - self.length), rows])
            start = self.length
        size, tail, written = self.layout.chunk_rows, self.tail, 0
        while written < len(rows):
            index, offset = divmod(start + written, size)
            part = rows[written : written + size - offset]
            if offset == 0:
                tail = self.layout.blank(size)
            filled = offset + len(part)
            tail[offset:filled] = part
            tail[filled:] = self.layout.fill
            if tail.size:
                path = self.folder / self.layout.chunk_name(index)
                data = self.layout.encode(self.folder.name, index, tail, filled=filled)
                replace_file(path, data, durable=durable)
            written += len(part)
        return Column(self.folder, self.layout, tail, start + written)

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
