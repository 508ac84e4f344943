"""All tables of metrics, filled by one thread in the background: what is asked for comes first."""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.view.opened import Opened
from rankscope.view.quantities import METRICS, Quantity
from rankscope.view.table import Table

MOST_BYTES = 192 * 1024 * 1024  # of all tables
PATIENCE = 0.35  # seconds that an answer waits for numbers
SOON = 0.6  # share of these after which a part of them is enough


@dataclass(frozen=True)
class Values:
    """Values (time, row) at some positions. Times that are not known yet repeat a neighbour.

    stored: whether the run stores what they are computed from; if so, NaN is not a number.
    done: the share of the positions that are known. damage: why some cannot be read, or "".
    """

    values: np.ndarray
    stored: np.ndarray
    done: float
    damage: str = ""

    @property
    def meta(self) -> dict[str, object]:
        """Progress, as every answer states it."""
        return {"complete": self.done == 1, "done": self.done, "damage": self.damage or None}


@dataclass(frozen=True, eq=False)
class Wish:
    """Positions of a metric that an answer waits for."""

    table: Table
    metric: str
    positions: np.ndarray

    @property
    def met(self) -> bool:
        return self.table.known(self.metric, self.positions)


class Tables:
    """Tables of all runs that are looked at, by run and stored array, up to a size in bytes."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._tables: OrderedDict[tuple[str, str], Table] = OrderedDict()
        self._wishes: list[Wish] = []
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def values(
        self,
        opened: Opened,
        quantity: Quantity,
        positions: np.ndarray,
        *,
        patience: float = PATIENCE,
    ) -> Values:
        """Return the values at `positions` as far as they are known after a moment."""
        with self._changed:
            table = self._table(opened, quantity)
            column = table.column(quantity.metric)
            wish = Wish(table, quantity.metric, positions)
            self._start()
            if not wish.met:
                self._wishes.insert(0, wish)
                del self._wishes[16:]
            self._changed.notify_all()
            began = time.monotonic()
            soon, end = began + SOON * patience, began + patience
            while not wish.met and (now := time.monotonic()) < end:
                if now >= soon and column.known[positions].any():
                    break
                self._changed.wait((soon if now < soon else end) - now)
            self._bound(table)
            return Values(*column.at(positions), table.damage)

    def forget(self, key: str) -> None:
        """Drop the tables of a run."""
        with self._changed:
            for name in [name for name in self._tables if name[0] == key]:
                del self._tables[name]

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=5)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables.values())

    def _table(self, opened: Opened, quantity: Quantity) -> Table:
        key = (opened.place.key, quantity.of)
        table = self._tables.get(key)
        if table is None or (table.opened is not opened and not table.continues(opened)):
            table = self._tables[key] = Table(opened, quantity.of, quantity.axis)
        elif table.opened is not opened and len(opened.x) >= len(table.opened.x):
            table.take(opened)
        self._tables.move_to_end(key)
        return table

    def _bound(self, current: Table) -> None:
        """Drop what was used longest ago until the size is kept."""
        while self.nbytes > self._most_bytes and len(self._tables) > 1:
            self._tables.popitem(last=False)
        current.drop(above=self._most_bytes)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        job: tuple[object, Iterator[None]] | None = None
        while not self._closed:
            with self._changed:
                self._wishes = [wish for wish in self._wishes if not wish.met]
                chosen = self._choose()
                if chosen is None:
                    self._changed.wait()
                    job = None
                    continue
                if job is None or job[0] != chosen[0]:
                    job = chosen
            try:
                next(job[1])
            except StopIteration:
                job = None
            with self._changed:
                self._changed.notify_all()

    def _choose(self) -> tuple[object, Iterator[None]] | None:
        """Return what to compute next, and a name for it: the last wish, else all of a table."""
        if self._wishes:
            wish = self._wishes[0]
            name = (wish, wish.table.opened)
            return name, wish.table.work([wish.metric], wish.positions)
        if not self._tables:
            return None
        table = next(reversed(self._tables.values()))
        metrics = self._worthwhile(table)
        if not metrics:
            return None
        return (table, table.opened, *metrics), table.work(metrics, None)

    def _worthwhile(self, table: Table) -> list[str]:
        """Return the metrics of a table that are to be known before they are asked for."""
        used_metrics = list(table.columns)
        names = [name for name in used_metrics if name not in METRICS]
        if table.axis in ("matrix", "product") and table.of.endswith("singular_values"):
            names += [name for name, metric in METRICS.items() if not metric.expensive]
        size = max(1, len(table.opened.x) * table.opened.ds.sizes[table.axis] * 5)
        room = max(1, int(self._most_bytes * 0.8) // size)
        if room < len(names):
            names = used_metrics[-room:]
        return [
            name
            for name in names
            if table.column(name).missing().size
            and not (name in METRICS and METRICS[name].expensive)
        ]
