"""Scalars over time: loss, learning rate, accuracy, what tracking cost."""

import numpy as np

from rankscope.view.columns import extremes
from rankscope.view.frames import packed
from rankscope.view.opened import Opened
from rankscope.view.query import Query

MOST_SCALARS = 256


def scalars(query: Query) -> bytes:
    """Return some scalars over each axis they are stored along; by default all."""
    opened = query.run()
    known = opened.scalars()
    names = query.texts("name") or list(known)[:MOST_SCALARS]
    if unknown := [name for name in names if name not in known]:
        raise LookupError(f"this run has no {len(unknown)} of these scalars; look at /api/run")
    arrays: dict[str, np.ndarray] = {}
    listed: dict[str, list[str]] = {}
    for along in dict.fromkeys(known[name] for name in names):
        listed[along] = [name for name in names if known[name] == along]
        arrays |= _along(query, opened, along, listed[along])
    return packed(arrays, {"names": listed, "along": opened.along, "commit": opened.commit})


def _along(query: Query, opened: Opened, along: str, names: list[str]) -> dict[str, np.ndarray]:
    x = opened.x if along == opened.along else opened.read(along)
    span = query.span()
    buckets = span.buckets(x)
    if buckets is None:
        positions = span.positions(x)
        part = slice(int(positions[0]), int(positions[-1]) + 1) if len(positions) else slice(0)
        columns = [opened.read(name, **{along: part}) for name in names]
        values = np.array(columns, np.float64)
    else:
        starts, ends = buckets
        part = slice(int(starts[0]), int(ends[-1]) + 1)
        values = np.array(
            [
                extremes(
                    opened.read(name, **{along: part}).astype(np.float64),
                    starts - starts[0],
                    ends - starts[0],
                )
                for name in names
            ]
        )
        positions = np.stack([starts, ends], axis=-1).reshape(-1)
    return {
        f"x:{along}": x[positions].astype(np.float64),
        f"positions:{along}": positions.astype(np.int32),
        f"values:{along}": values,
    }
