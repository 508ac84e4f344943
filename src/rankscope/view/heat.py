"""Metrics of many rows over time: heat maps, lines, heads."""

from typing import Any

import numpy as np

from rankscope.view.columns import extremes
from rankscope.view.frames import Scale, packed, value_range
from rankscope.view.opened import Opened
from rankscope.view.quantities import Quantity
from rankscope.view.query import Mistake, Query

MOST_ROWS, MOST_LINES = 4096, 512
EXPENSIVE_COLUMNS = 48  # of a metric that takes long


def heat(query: Query) -> bytes:
    """Return rows x time of one quantity, a byte or a float each."""
    opened = query.run()
    quantity = query.quantity(opened)
    rows = query.rows(opened, quantity.axis, most=MOST_ROWS)
    return heat_of(query, opened, quantity, rows)


def heat_of(query: Query, opened: Opened, quantity: Quantity, rows: np.ndarray) -> bytes:
    """Return the heat map of some rows."""
    positions = _positions(query, opened, quantity)
    known = query.library.tables.values(opened, quantity, positions)
    rows = _ordered(rows, known.values, opened, quantity, query)
    values, stored = known.values[:, rows].T, known.stored[:, rows].T
    low, high = query.number("low"), query.number("high")
    if low is not None and high is not None and quantity.scale == "log" and min(low, high) <= 0:
        raise Mistake("low and high of a logarithmic scale are above 0")
    kind = quantity.colour_kind(values) if low is None or high is None else quantity.scale
    scale = Scale.of(values, kind, low=low, high=high)
    as_bytes = query.choice("format", "uint8", "float32") == "uint8"
    arrays = {
        "values": scale.bytes_of(values, stored) if as_bytes else values,
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "rows": rows.astype(np.int32),
        **({} if as_bytes else gaps(stored)),
    }
    meta = _meta(opened, quantity) | known.meta
    return packed(arrays, meta | {"scale": scale.to_json(), "range": value_range(values)})


def gaps(stored: np.ndarray) -> dict[str, np.ndarray]:
    """Return the array of a frame that says what is stored; none if everything is."""
    return {} if stored.all() else {"stored": stored.astype(np.uint8)}


def lines(query: Query) -> bytes:
    """Return one quantity over time for some rows; many snapshots as least and largest."""
    opened = query.run()
    quantity = query.quantity(opened)
    rows = query.rows(opened, quantity.axis, most=MOST_LINES)
    return packed(*lines_of(query, opened, quantity, rows))


def lines_of(
    query: Query, opened: Opened, quantity: Quantity, rows: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays and description of the lines of some rows."""
    span = query.span()
    buckets = None if quantity.expensive else span.buckets(opened.x)
    if buckets is None:
        positions = _positions(query, opened, quantity)
        known = query.library.tables.values(opened, quantity, positions)
        values, stored = known.values[:, rows].T, known.stored[:, rows].T
    else:
        starts, ends = buckets
        covered = np.arange(starts[0], ends[-1] + 1)
        known = query.library.tables.values(opened, quantity, covered)
        values = extremes(known.values[:, rows].T, starts - starts[0], ends - starts[0])
        stored = np.logical_or.reduceat(known.stored[:, rows].T, starts - starts[0], axis=-1)
        stored = stored.repeat(2, axis=-1)
        positions = np.stack([starts, ends], axis=-1).reshape(-1)
    names = opened.names[quantity.axis]
    arrays = {
        "values": values,
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "rows": rows.astype(np.int32),
        **gaps(stored),
    }
    meta = _meta(opened, quantity) | known.meta | {"decimated": buckets is not None}
    return arrays, meta | {"names": [names[row] for row in rows], "range": value_range(values)}


def heads(query: Query) -> bytes:
    """Return one quantity of every head's product over time, and where each head belongs."""
    opened = query.run()
    if "product" not in opened.names:
        raise LookupError("this run follows no attention heads; track a model whose heads are read")
    quantity = query.quantity(opened)
    if quantity.axis != "product":
        raise Mistake("heads are products; take of from the quantities of products")
    rows = np.arange(min(opened.ds.sizes["product"], MOST_ROWS))
    arrays, meta = lines_of(query, opened, quantity, rows)
    grid = [{"row": i, **row} for i, row in enumerate(opened.rows_of("product")[: len(rows)])]
    layers = {row["layer"] for row in grid}
    numbers = [row["head"] for row in grid if row["head"] is not None]
    meta |= {
        "grid": grid,
        "kinds": list(dict.fromkeys(row["kind"] for row in grid)),
        "layers": len(layers),
        "heads": max(numbers, default=-1) + 1,
    }
    return packed(arrays, meta)


def _positions(query: Query, opened: Opened, quantity: Quantity) -> np.ndarray:
    span = query.span()
    if quantity.expensive and span.width > EXPENSIVE_COLUMNS:
        span = span.__class__(span.first, span.last, EXPENSIVE_COLUMNS, span.log)
    return span.positions(opened.x)


def _ordered(
    rows: np.ndarray, values: np.ndarray, opened: Opened, quantity: Quantity, query: Query
) -> np.ndarray:
    order = query.choice("order", "model", "kind", "moved")
    if order == "kind":
        plain = opened.plain[quantity.axis]
        roles = list(dict.fromkeys(plain[row].role for row in rows))
        keys = [(roles.index(plain[row].role), plain[row].depth, row) for row in rows]
        return np.array([row for *_, row in sorted(keys)], int)
    if order == "moved" and len(values):
        shown = values[:, rows]
        moved = np.fmax.reduce(shown) - np.fmin.reduce(shown)
        return rows[np.argsort(-np.nan_to_num(moved, nan=-1.0), kind="stable")]
    return rows


def _meta(opened: Opened, quantity: Quantity) -> dict[str, Any]:
    return {
        "axis": quantity.axis,
        "along": opened.along,
        "of": quantity.of,
        "metric": quantity.metric,
        "label": quantity.label,
        "commit": opened.commit,
    }
