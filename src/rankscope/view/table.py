"""The values of metrics over all times and rows of a run, as far as they are known."""

import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from rankscope.view.columns import coarse_first
from rankscope.view.gaps import is_stored
from rankscope.view.lengths import lengths_of
from rankscope.view.opened import Opened, TooLarge
from rankscope.view.quantities import inputs, measured, stored_name

CELLS = 50_000_000  # values of one metric
PART_BYTES = 2 * 1024 * 1024  # spectra that metrics see at once


class Column:
    """One metric: a float32 number for each time and row, and which times are known.

    stored: whether the run stores what the number is computed from.
    """

    def __init__(self, rows: int) -> None:
        self.values = np.empty((0, rows), np.float32)
        self.stored = np.empty((0, rows), bool)
        self.known = np.zeros(0, bool)
        self.length = 0
        self._lock = threading.Lock()  # one thread computes while others read and grow

    @property
    def nbytes(self) -> int:
        return self.length * (self.values.shape[1] * 5 + 1)

    def grow(self, length: int) -> None:
        """Make room for `length` times; those that are new are not known."""
        with self._lock:
            if length > len(self.known):
                room = length if not self.length else length + length // 4 + 64
                grown = (
                    np.empty((room, self.values.shape[1]), np.float32),
                    np.empty((room, self.values.shape[1]), bool),
                    np.zeros(room, bool),
                )
                for new, old in zip(grown, (self.values, self.stored, self.known), strict=True):
                    new[: self.length] = old[: self.length]
                self.values, self.stored, self.known = grown
            self.length = length

    def put(self, positions: np.ndarray, values: np.ndarray, stored: np.ndarray) -> None:
        """Set the values at some positions."""
        with self._lock:
            self.values[positions] = values
            self.stored[positions] = stored
            self.known[positions] = True

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the values at `positions`, whether they are stored, and the share that is known.

        Those that are not known yet repeat the nearest known one on the left, or the first.
        """
        with self._lock:
            known = np.flatnonzero(self.known[positions])
            if len(known) == len(positions):
                return self.values[positions], self.stored[positions], 1.0
            if not len(known):
                nothing = np.full((len(positions), self.values.shape[1]), np.nan, np.float32)
                return nothing, np.zeros(nothing.shape, bool), 0.0
            left = np.searchsorted(known, np.arange(len(positions)), "right") - 1
            nearest = positions[known[left.clip(0)]]
            return self.values[nearest], self.stored[nearest], len(known) / len(positions)

    def missing(self) -> np.ndarray:
        """Return the positions that are not known."""
        return np.flatnonzero(~self.known[: self.length])


class Table:
    """The metrics of one stored array of one run. It grows when snapshots are appended."""

    def __init__(self, opened: Opened, of: str, axis: str) -> None:
        self.of, self.axis = of, axis
        self.stored = inputs(opened.ds, of, "")[0]  # the array that says how the files are cut
        self.columns: OrderedDict[str, Column] = OrderedDict()
        self.damage = ""
        self._rows = opened.ds.sizes[axis]
        self._lengths = lengths_of(opened, self.stored, axis)
        self._lock = threading.RLock()
        self.take(opened)

    def take(self, opened: Opened) -> None:
        """Use this state of the run from now on."""
        length = len(opened.x)
        if length * self._rows > CELLS:
            raise TooLarge(
                f"{length} snapshots of {self._rows} rows are more than the viewer can show; "
                "open the run with rankscope.open"
            )
        with self._lock:
            for column in self.columns.values():
                column.grow(length)
            self.opened = opened

    def continues(self, opened: Opened) -> bool:
        """Return whether `opened` only has more snapshots than this table."""
        before, now = self.opened, opened
        return (
            before.attrs.get("dropped") == now.attrs.get("dropped")
            and before.attrs.get("started") == now.attrs.get("started")
            and self.stored in now.ds
            and before.ds[self.stored].shape[1:] == now.ds[self.stored].shape[1:]
            and np.array_equal(before.x, now.x[: len(before.x)])
        )

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(column.nbytes for column in self.columns.values())

    def column(self, metric: str) -> Column:
        """Return the column of a metric, which is then the one used last."""
        with self._lock:
            column = self.columns.get(metric)
            if column is None:
                column = self.columns[metric] = Column(self._rows)
                column.grow(len(self.opened.x))
            self.columns.move_to_end(metric)
            return column

    def drop(self, *, above: int) -> None:
        """Give up the columns that were used longest ago until the size is kept."""
        with self._lock:
            while self.nbytes > above and len(self.columns) > 1:
                self.columns.popitem(last=False)

    def known(self, metric: str, positions: np.ndarray) -> bool:
        """Return whether a metric is known at all of some positions."""
        return bool(self.column(metric).known[positions].all())

    def units(self) -> np.ndarray:
        """Return the first position of each unit of work along time, and the end: whole chunks."""
        array = self.opened.ds[self.stored]
        chunks = array.encoding.get("preferred_chunks", {})
        rows = max(1, int(chunks.get(self.opened.along, 1)))
        length = len(self.opened.x)
        bytes_of_chunk = max(1, rows * array.nbytes // max(1, length))
        rows *= max(1, PART_BYTES // bytes_of_chunk)
        return np.array([*range(0, length, rows), length])

    def work(self, metrics: list[str], wanted: np.ndarray | None) -> Iterator[None]:
        """Compute what is not known of some metrics, coarse first; yield after each part.

        wanted: positions that matter, by default all.
        """
        with self._lock:
            opened, edges = self.opened, self.units()
        order = coarse_first(len(edges) - 1)
        for coarse in (True, False) if wanted is not None else (False,):
            for unit in order:
                inside = np.arange(edges[unit], edges[unit + 1])
                if wanted is not None:
                    inside = np.intersect1d(inside, wanted, assume_unique=True)
                if coarse and len(inside) > 1:
                    inside = inside[-1:] if unit == len(edges) - 2 else inside[:1]
                lacking = [name for name in metrics if not self.known(name, inside)]
                if lacking and len(inside):
                    yield from self._compute(opened, lacking, inside)

    def _compute(self, opened: Opened, metrics: list[str], positions: np.ndarray) -> Iterator[None]:
        """Compute some metrics at neighbouring positions, which are read once."""
        names = {name for metric in metrics for name in inputs(opened.ds, self.of, metric)}
        names |= {"status"} & opened.ds.keys()
        array = stored_name(opened.ds, self.of)
        first, last = int(positions[0]), int(positions[-1]) + 1
        try:
            loaded = opened.part(sorted(names), **{opened.along: slice(first, last)})
            if len(positions) < last - first:
                loaded = loaded.isel({opened.along: positions - first})
            per_row = max(1, loaded.nbytes // max(1, len(positions)))
            rows = max(1, PART_BYTES // per_row)
            for start in range(0, len(positions), rows):
                part = loaded.isel({opened.along: slice(start, start + rows)})
                stored = is_stored(part, array, opened.along, self._lengths)
                for metric in metrics:
                    if not self.known(metric, positions[start : start + rows]):
                        values = measured(part, self.of, metric, opened.along)
                        stored_here = stored | ~np.isnan(values)
                        places = positions[start : start + rows]
                        self.column(metric).put(places, values, stored_here)
                        yield
        except Exception as damage:  # whatever a file holds, the rest of the run is shown
            self.damage = str(damage)
            for metric in metrics:
                nothing = np.full(self._rows, np.nan, np.float32)
                self.column(metric).put(positions, nothing, np.zeros(self._rows, bool))
            yield
