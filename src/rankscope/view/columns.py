"""Choice of the snapshots that a picture of limited width shows."""

import math
from dataclasses import dataclass

import numpy as np

WIDTH, MOST_COLUMNS = 1024, 4096


@dataclass(frozen=True)
class Span:
    """An interval of the time axis, and how many columns show it.

    first, last: its ends, both included; None is the end of the run. log: columns are even in the
    logarithm of time, not in the number of the snapshot.
    """

    first: float | None = None
    last: float | None = None
    width: int = WIDTH
    log: bool = False

    def inside(self, x: np.ndarray) -> range:
        """Return the positions of the snapshots inside; `x` rises."""
        start = 0 if self.first is None else int(np.searchsorted(x, self.first, "left"))
        stop = len(x) if self.last is None else int(np.searchsorted(x, self.last, "right"))
        return range(start, max(start, stop))

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Return the positions of the columns, at most `width`, both ends among them."""
        inside = self.inside(x)
        if len(inside) <= self.width:
            return np.arange(inside.start, inside.stop)
        if not self.log:
            # Every n-th, so that a snapshot that is appended changes no other column.
            stride = -(-(len(inside) - 1) // (self.width - 1))
            return np.unique([*inside[::stride], inside[-1]])
        part = x[inside.start : inside.stop].astype(np.float64)
        least = part[part > 0].min(initial=math.inf)
        wanted = np.geomspace(max(least, 1e-300), max(part[-1], least), self.width - 2)
        nearest = inside.start + np.searchsorted(part, wanted).clip(0, len(part) - 1)
        return np.unique([inside.start, *nearest, inside.stop - 1])

    def buckets(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return first and last positions of the buckets; None if every snapshot has room."""
        inside = self.inside(x)
        if len(inside) <= self.width:
            return None
        edges = self.__class__(self.first, self.last, max(2, self.width // 2), self.log).positions(
            x
        )
        starts = np.array([edges[0], *(edges[1:-1] + 1)])
        return starts, edges[1:]


def extremes(values: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return least and largest value of each bucket, one after the other, along the last axis.

    starts, ends: positions along that axis, which the buckets cover without gaps.
    """
    offset = starts - starts[0]
    covered = values[..., starts[0] : ends[-1] + 1]
    low = np.fmin.reduceat(covered, offset, axis=-1)
    high = np.fmax.reduceat(covered, offset, axis=-1)
    return np.stack([low, high], axis=-1).reshape(*values.shape[:-1], -1)


def coarse_first(count: int) -> list[int]:
    """Return 0 to count - 1 so that any beginning of the list is spread evenly."""
    bits = max(1, (count - 1).bit_length())
    mirrored = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits))
    order = [number for number in mirrored if number < count]
    return list(dict.fromkeys([0, count - 1, *order])) if count else []
