"""One quantity in several runs, aligned by step, epoch, loss, or share of the training."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.view.frames import packed
from rankscope.view.library import Unknown
from rankscope.view.opened import Opened
from rankscope.view.query import Mistake, Query
from rankscope.view.summary import LOSSES

MOST_RUNS = 24
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
    """Return one curve per run, or per group of seeds with a band, on a grid they share."""
    keys = list(dict.fromkeys(query.texts("run")))
    if not 1 <= len(keys) <= MOST_RUNS:
        raise Mistake(f"compare 1 to {MOST_RUNS} runs")
    align = query.choice("align", "step", "epoch", "loss", "fraction")
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
    groups = (
        _grouped(curves)
        if query.choice("group", "seed", "none") == "seed"
        else [[curve] for curve in curves]
    )
    rows = np.array([_on_grid(curve, grid) for curve in curves]).reshape(len(curves), len(grid))
    reference = query.parameters.get("difference")
    if reference:
        rows = rows - _reference(reference, curves, rows)
    places = {curve.key: place for place, curve in enumerate(curves)}
    bands = [_band(rows[[places[curve.key] for curve in group]]) for group in groups]
    shape = (len(bands), len(grid))
    arrays = {"x": grid} | {
        name: np.array([band[i] for band in bands], np.float32).reshape(shape)
        for i, name in enumerate(("values", "low", "high"))
    }
    done = min((curve.done for curve in curves), default=1.0)
    meta = {
        "curves": [_described(group) for group in groups],
        "align": align,
        "x_label": LABELS[align],
        "unavailable": unavailable,
        "difference": reference,
        "complete": done == 1,
        "done": done,
    }
    return packed(arrays, meta)


def _curve(query: Query, key: str, align: str, summary: dict[str, Any], runs: int) -> Curve:
    opened = query.library.open(key)
    quantity = query.quantity(opened)
    rows = rows_together(query, opened, quantity.axis)
    positions = query.span().positions(opened.x)
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
    x = np.asarray(opened.x[positions], np.float64)
    if align == "fraction" and len(x) and opened.x[-1]:
        x = x / float(opened.x[-1])
    if align == "epoch":
        if "epoch" in opened.ds and opened.ds["epoch"].dims == (opened.along,):
            return np.asarray(opened.read("epoch")[positions], np.float64)
        x = x / _epoch_length(opened)
    if align == "loss":
        name = next((name for name in LOSSES if name in opened.ds), None)
        if name is None or opened.ds[name].dims != (opened.along,):
            raise LookupError("the run stores no loss at its snapshots")
        loss = np.asarray(opened.read(name)[positions], np.float64)
        x = np.fmin.accumulate(loss)  # the lowest so far, which falls in every run
    return x


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
    width = query.span().width
    together: np.ndarray = np.unique(np.concatenate([*(curve.x for curve in curves), []]))
    if len(together) > width:
        together = together[np.linspace(0, len(together) - 1, width).round().astype(int)]
    return together


def _on_grid(curve: Curve, grid: np.ndarray) -> np.ndarray:
    if not len(curve.x):
        return np.full(len(grid), np.nan)
    x, first = np.unique(curve.x, return_index=True)
    return np.asarray(np.interp(grid, x, curve.y[first], left=np.nan, right=np.nan))


def _grouped(curves: list[Curve]) -> list[list[Curve]]:
    """Put runs together that differ in their seed alone."""
    groups: dict[Any, list[Curve]] = {}
    for curve in curves:
        row = curve.summary
        name = tuple(row.get(key) for key in ("experiment", "scale", "network", "variant"))
        groups.setdefault(
            name if row.get("seed") is not None and any(name) else curve.key, []
        ).append(curve)
    return list(groups.values())


def _reference(key: str, curves: list[Curve], rows: np.ndarray) -> np.ndarray:
    for curve, row in zip(curves, rows, strict=True):
        if curve.key == key:
            return np.array(row)
    raise Mistake("difference is one of the runs that are compared")


def _band(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, lowest and highest of the seeds where all of them are known."""
    return rows.mean(0), rows.min(0), rows.max(0)


def _described(group: list[Curve]) -> dict[str, Any]:
    first = group[0].summary
    parts = [first.get("network"), first.get("variant")]
    label = ", ".join(str(part).replace("-", " ", 1) for part in parts if part)
    if len(group) == 1 and first.get("seed") is not None and label:
        label += f", seed {first['seed']}"
    return {
        "label": label or first.get("name"),
        "runs": [curve.key for curve in group],
        "seeds": [curve.summary.get("seed") for curve in group],
        "count": len(group),
        "decay": first.get("decay"),
        "missing": [],
    }
