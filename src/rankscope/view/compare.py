"""One quantity in several runs, aligned by step, epoch, loss, or share of the training."""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.view.columns import Span
from rankscope.view.frames import packed
from rankscope.view.library import Unknown
from rankscope.view.opened import Opened
from rankscope.view.query import Mistake, Query
from rankscope.view.summary import LOSSES

MOST_RUNS = 64
PATIENCE = 1.0  # seconds, shared by all runs
LABELS = {"step": "step", "epoch": "epoch", "loss": "loss", "fraction": "share of the training"}


@dataclass(frozen=True)
class Curve:
    """A quantity of one run over what the runs are aligned by; `x` rises."""

    key: str
    summary: dict[str, Any]
    x: np.ndarray
    y: np.ndarray
    done: float


def compare(query: Query) -> bytes:
    """Return one curve per run, or per group of seeds with a band, on a grid they share.

    difference: a run; the mean of its group is subtracted from all. from, to: ends of the grid.
    """
    keys = compared_keys(query)
    align = alignment_of(query)
    summaries = {row["id"]: row for row in query.library.summaries()}
    curves, unavailable = [], []
    for key in keys:
        try:
            curves.append(_curve(query, key, align, summaries.get(key, {}), len(keys)))
        except Unknown:
            raise
        except (LookupError, ValueError) as reason:
            unavailable.append({"run": key, "reason": str(reason.args[0])})
    grid = _grid(curves, query)
    groups = groups_of([curve.summary | {"id": curve.key} for curve in curves], query)
    rows = np.array([_on_grid(curve, grid) for curve in curves]).reshape(len(curves), len(grid))
    if (reference := reference_of(groups, [curve.key for curve in curves], query)) is not None:
        rows = rows - rows[groups[reference]].mean(axis=0)
    bands = [_band(rows[group]) for group in groups]
    described = [_described([curves[place] for place in group]) for group in groups]
    shape = (len(bands), len(grid))
    arrays = {"x": grid} | {
        name: np.array([band[i] for band in bands], np.float32).reshape(shape)
        for i, name in enumerate(("values", "low", "high"))
    }
    done = min((curve.done for curve in curves), default=1.0)
    meta = {
        "curves": described,
        "align": align,
        "x_label": LABELS[align],
        "unavailable": unavailable,
        "reference": None if reference is None else described[reference]["label"],
        "complete": done == 1,
        "done": done,
    }
    return packed(arrays, meta)


def _curve(query: Query, key: str, align: str, summary: dict[str, Any], runs: int) -> Curve:
    opened = query.library.open(key)
    quantity = query.quantity(opened)
    rows = rows_together(query, opened, quantity.axis)
    positions = Span(width=query.span().width).positions(opened.x)
    known = query.library.tables.values(opened, quantity, positions, patience=PATIENCE / runs)
    values = known.values[:, rows].astype(np.float64)
    finite = np.isfinite(values)
    count = np.maximum(finite.sum(1), 1)
    mean = np.where(finite.any(1), np.where(finite, values, 0).sum(1) / count, np.nan)
    x = _aligned(opened, positions, align)
    order = np.argsort(x, kind="stable")
    usable = order[np.isfinite(x[order]) & np.isfinite(mean[order])]
    return Curve(key, summary, x[usable], mean[usable], known.done)


def rows_together(query: Query, opened: Opened, axis: str) -> np.ndarray:
    """Return the positions of a kind, of a block, or of the rows that are asked for."""
    words = opened.plain[axis]
    whole = opened.whole(axis)
    if query.has("kind"):
        rows = np.array([row for row in whole if words[row].role == query.text("kind")], int)
    elif query.has("block"):
        rows = np.array([row for row in whole if words[row].block == query.text("block")], int)
    else:
        rows = query.rows(opened, axis, most=100_000)
    if not len(rows):
        raise LookupError("this run has no matrix of that kind there")
    return rows


def _aligned(opened: Opened, positions: np.ndarray, align: str) -> np.ndarray:
    name, unit = axis_of(opened, align)
    x = opened.x if name == opened.along else opened.read(name)
    if align == "loss":
        x = np.fmin.accumulate(x)  # the lowest so far, which falls in every run
    return np.asarray(x[positions], np.float64) / unit


def axis_of(opened: Opened, align: str) -> tuple[str, float]:
    """Return the name of what a run is aligned by, and the number by which it is divided."""
    if align == "fraction":
        return opened.along, float(opened.x[-1]) if len(opened.x) and opened.x[-1] else 1.0
    if align == "epoch":
        if "epoch" in opened.ds and opened.ds["epoch"].dims == (opened.along,):
            return "epoch", 1.0
        return opened.along, _epoch_length(opened)
    if align == "loss":
        for name in LOSSES:
            if name in opened.ds and opened.ds[name].dims == (opened.along,):
                return name, 1.0
        raise LookupError("the run stores no loss at its snapshots")
    return opened.along, 1.0


def _epoch_length(opened: Opened) -> float:
    """Return how many steps an epoch has, or how long it is in time, as the run declares it."""
    attrs: Mapping[Hashable, Any] = opened.attrs
    lengths = [attrs.get("epoch_steps"), attrs.get("epoch_time")]
    for name in ("declaration", "snapshots"):  # of kept runs
        inner = attrs.get(name)
        attrs = inner if isinstance(inner, Mapping) else {}
    for length in (*lengths, attrs.get("steps_per_epoch")):
        if isinstance(length, int | float) and 0 < length < math.inf:
            return float(length)
    raise LookupError("the run does not say how long an epoch is; log a scalar epoch")


def _grid(curves: list[Curve], query: Query) -> np.ndarray:
    span = query.span()
    together: np.ndarray = np.unique(np.concatenate([*(curve.x for curve in curves), []]))
    inside = span.inside(together)
    together, width = together[inside.start : inside.stop], span.width
    if len(together) > width:
        together = together[np.linspace(0, len(together) - 1, width).round().astype(int)]
    return together


def _on_grid(curve: Curve, grid: np.ndarray) -> np.ndarray:
    if not len(curve.x):
        return np.full(len(grid), np.nan)
    x, first = np.unique(curve.x, return_index=True)
    return np.asarray(np.interp(grid, x, curve.y[first], left=np.nan, right=np.nan))


def compared_keys(query: Query) -> list[str]:
    """Return the runs that are compared."""
    keys = list(dict.fromkeys(query.texts("run")))
    if not 1 <= len(keys) <= MOST_RUNS:
        raise Mistake(f"compare 1 to {MOST_RUNS} runs")
    return keys


def alignment_of(query: Query) -> str:
    """Return what runs are aligned by."""
    return query.choice("align", *LABELS)


def groups_of(summaries: Sequence[Mapping[str, Any]], query: Query) -> list[list[int]]:
    """Return the places of runs that differ in their seed alone; each by itself if so asked."""
    if query.choice("group", "seed", "none") == "none":
        return [[place] for place in range(len(summaries))]
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(summaries):
        name = tuple(row.get(key) for key in ("experiment", "scale", "network", "variant"))
        if not any(name):
            name = (row.get("folder"), _name_without_seed(row), row.get("decay"))
        groups.setdefault(row["id"] if row.get("seed") is None else name, []).append(place)
    return list(groups.values())


def _name_without_seed(row: Mapping[str, Any]) -> str:
    """Return the name of a run without the part that names its seed."""
    name = str(row.get("name") or "")
    return re.sub(rf"[/_-]?seed[-_=]?{row.get('seed')}(?!\d)", "", name)


def reference_of(groups: Sequence[Sequence[int]], keys: Sequence[str], query: Query) -> int | None:
    """Return the place of the group that is subtracted; None if none is."""
    reference = query.parameters.get("difference")
    if not reference:
        return None
    for place, group in enumerate(groups):
        if reference in [keys[one] for one in group]:
            return place
    raise Mistake("the run to subtract is none of those that have this measure; choose another")


def _band(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, lowest and highest of the seeds where all of them are known."""
    return rows.mean(0), rows.min(0), rows.max(0)


def _described(group: list[Curve]) -> dict[str, Any]:
    first = group[0].summary
    collapsed = all(curve.summary.get("status") == "collapsed" for curve in group)
    return {
        "label": label_of(first, len(group)) + (" (collapsed)" if collapsed else ""),
        "runs": [curve.key for curve in group],
        "seeds": [curve.summary.get("seed") for curve in group],
        "count": len(group),
        "decay": first.get("decay"),
        "collapsed": collapsed,
    }


def label_of(first: Mapping[str, Any], count: int) -> str:
    """Return the name of a curve over so many seeds, by the first of them."""
    network = first.get("network_title") or first.get("network")
    variant = str(first.get("variant") or "").replace("-", " ", 1)
    label = ", ".join(part for part in (network, variant) if part)
    if not label:
        return str(first.get("name") or "") if count == 1 else _name_without_seed(first)
    alone = count == 1 and first.get("seed") is not None
    return f"{label}, seed {first['seed']}" if alone else label
