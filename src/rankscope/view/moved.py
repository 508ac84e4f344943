"""Ranking of what moved most: matrices, kinds and layers, each with a small line."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rankscope.plain_names import PlainName
from rankscope.view.frames import plain
from rankscope.view.opened import Opened
from rankscope.view.quantities import Quantity
from rankscope.view.query import Query

POINTS, MOST_POINTS = 48, 256
LIMIT, MOST = 200, 5_000
COLUMNS = 1024  # snapshots that are compared


def moved(query: Query) -> dict[str, Any]:
    """Return the rows of one quantity, those that moved furthest first, and roll-ups."""
    opened = query.run()
    quantity = query.quantity(opened)
    rows = query.rows(opened, quantity.axis, most=100_000)
    width = 48 if quantity.expensive else COLUMNS
    span = query.span(width=width)
    positions = span.positions(opened.x)
    known = query.library.tables.values(opened, quantity, positions)
    points = query.integer("points", POINTS, least=2, most=MOST_POINTS)
    limit = query.integer("limit", LIMIT, least=1, most=MOST)
    stored = known.stored[:, rows]
    ranked = ranking(
        opened, quantity, rows, positions, known.values[:, rows], stored, points, limit
    )
    return plain(ranked | known.meta)  # type: ignore[no-any-return]


def ranking(
    opened: Opened,
    quantity: Quantity,
    rows: np.ndarray,
    positions: np.ndarray,
    values: np.ndarray,
    stored: np.ndarray,
    points: int,
    limit: int,
) -> dict[str, Any]:
    """Return the ranking of `values` (time, row), at the times at which any is stored."""
    times, columns = stored.any(axis=1), len(positions)
    values, stored, positions = values[times], stored[times], positions[times]
    x = opened.x[positions]
    shown = _shown(values, logarithmic=quantity.scale == "log")
    amount = movement(shown)
    order = np.argsort(-np.nan_to_num(amount, nan=-1.0), kind="stable")
    thin = np.unique(np.linspace(0, max(0, len(x) - 1), points).round().astype(int))
    thin = thin if len(x) else thin[:0]
    names, words = opened.names[quantity.axis], opened.plain[quantity.axis]

    def entry(place: int) -> dict[str, Any]:
        row = int(rows[place])
        label = words[row]
        return {
            "row": row,
            "name": names[row],
            "label": label.label,
            "kind": label.role,
            "block": label.block,
            "depth": label.depth,
            **_line(values[:, place], amount[place], thin),
            "broke": _broke(values[:, place], stored[:, place], x),
            "at": _largest_change(shown[:, place], x),
        }

    def rolled(key: Callable[[PlainName], tuple[Any, ...]]) -> list[dict[str, Any]]:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(key(words[row]), []).append(place)
        return [
            _group(group, values[:, places], amount[places], thin)
            for group, places in groups.items()
        ]

    return {
        "x": x[thin],
        "stored": len(x),
        "columns": columns,
        "rows": [entry(place) for place in order[:limit].tolist()],
        "kinds": [
            {"kind": group["key"][0], "label": group["key"][0], **_without_key(group)}
            for group in rolled(lambda word: (word.role,))
        ],
        "depths": [
            {"block": group["key"][0], "depth": group["key"][1], **_without_key(group)}
            for group in rolled(lambda word: (word.block, word.depth))
        ],
        "total": len(rows),
        "of": quantity.of,
        "metric": quantity.metric,
        "axis": quantity.axis,
        "commit": opened.commit,
    }


def movement(shown: np.ndarray) -> np.ndarray:
    """Return highest - lowest value of each row over time; NaN where nothing is known."""
    if not len(shown):
        return np.full(shown.shape[1], np.nan)
    amount: np.ndarray = np.fmax.reduce(shown) - np.fmin.reduce(shown)
    return amount


def _shown(values: np.ndarray, *, logarithmic: bool) -> np.ndarray:
    values = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    if not logarithmic:
        return values
    return np.log10(np.where(values > 0, values, np.nan))


def _line(values: np.ndarray, amount: float, thin: np.ndarray) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    nothing: list[float | None] = [None] * 4
    ends = [finite[0], finite[-1], finite.min(), finite.max()] if finite.size else nothing
    summary = dict(zip(("first", "last", "low", "high"), ends, strict=True))
    return {"moved": amount, **summary, "spark": values[thin]}


def _group(
    key: tuple[Any, ...], values: np.ndarray, amounts: np.ndarray, thin: np.ndarray
) -> dict[str, Any]:
    known = np.isfinite(values)
    count = np.maximum(known.sum(1), 1)
    mean = np.where(known.any(1), np.where(known, values, 0).sum(1) / count, np.nan)
    part = np.where(known, values, np.nan)[thin]
    finite = amounts[np.isfinite(amounts)]
    line = _line(mean, float(finite.mean()) if finite.size else float("nan"), thin)
    return {
        "key": key,
        "count": values.shape[1],
        **line,
        "low": np.fmin.reduce(part, axis=1),
        "high": np.fmax.reduce(part, axis=1),
    }


def _without_key(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "key"}


def _broke(values: np.ndarray, stored: np.ndarray, x: np.ndarray) -> float | None:
    """Return the time from which a row is not finite up to its end; None if it is."""
    times = np.flatnonzero(stored)
    if not len(times) or np.isfinite(values[times[-1]]):
        return None
    finite = np.flatnonzero(np.isfinite(values[times]))
    return float(x[times[finite[-1] + 1 if len(finite) else 0]])


def _largest_change(shown: np.ndarray, x: np.ndarray) -> float | None:
    steps = np.abs(np.diff(shown))
    if not np.isfinite(steps).any():
        return None
    return float(x[1 + int(np.nanargmax(steps))])
