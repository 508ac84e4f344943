"""Rows of the tables of pictures: the arrays of a panel, a column for each curve."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.view.query import Query
from rankscope.view.theory import flow_parts, staircase_at

Rows = Iterator[Sequence[Any]]


@dataclass(frozen=True)
class Panel:
    """Arrays and description of a panel, and the query that they answer."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    query: Query


def panel_rows(name: str, panel: Panel) -> Rows:
    """Yield the head of a panel's table, then its rows."""
    return ROWS.get(name, _values_over_time)(panel)


def _scalars(panel: Panel) -> Rows:
    """Yield a table for the scalars of snapshots, and one for those of every step."""
    for along, names in panel.meta["names"].items():
        yield [along, *names]
        x, values = (panel.arrays[f"{part}:{along}"] for part in ("x", "values"))
        yield from np.column_stack([x, values.T]).tolist()


def _spectrum(panel: Panel) -> Rows:
    arrays = panel.arrays
    parts = [name for name in ("now", "start", "change") if arrays[name].size]
    names = [*parts, *(["chance"] * bool(arrays["chance"].size))]
    names += [f"energy_{name}" for name in parts]
    yield ["index", *(name.replace("_", " ") for name in names)]
    longest = max((arrays[name].size for name in names), default=0)
    for i in range(longest):
        yield [i + 1, *(arrays[n][i].item() if i < arrays[n].size else "" for n in names)]


def _ranks(panel: Panel) -> Rows:
    ranks = {name: panel.meta["ranks"][name] for name in ("start", "now", "change")}
    yield ["rank", *(name for name, known in ranks.items() if known)]
    for name in ranks["now"]:
        title = f"{name}% of the energy" if name.isdigit() else f"{name} rank"
        yield [title, *(known[name] for known in ranks.values() if known)]


def _curves(panel: Panel) -> Rows:
    """Yield for each curve its value at the cursor, and its first and last one."""
    x, step = panel.arrays["x"], panel.query.number("step")
    yield ["curve", "seeds", panel.meta["align"], "value", "first", "last"]
    nearest = -1 if step is None or not len(x) else int(np.abs(x - step).argmin())
    for curve, values in zip(panel.meta["curves"], panel.arrays["values"], strict=True):
        finite = values[~np.isnan(values)]
        ends = finite[[0, -1]].tolist() if finite.size else [None, None]
        at_cursor = [x[nearest].item(), values[nearest].item()] if len(x) else [None, None]
        yield [curve["label"], curve["count"], *at_cursor, *ends]


def _comparison(panel: Panel) -> Rows:
    labels = [curve["label"] for curve in panel.meta["curves"]]
    columns = [f"{label}{end}" for label in labels for end in ("", " low", " high")]
    yield [panel.meta["align"], *columns]
    x = panel.arrays["x"]
    bands = np.stack([panel.arrays[name] for name in ("values", "low", "high")], axis=1)
    yield from np.column_stack([x, bands.reshape(-1, len(x)).T]).tolist()


def _flow(panel: Panel) -> Rows:
    """Yield the chosen parts of a flow, and the loss that Algorithm 1 predicts."""
    arrays, query = panel.arrays, panel.query
    parts = [name for name in flow_parts(query) if name in arrays]
    names = [name for part in parts for name in _flow_names(part, panel)]
    curves = [np.atleast_2d(arrays[name]) for name in parts]
    if (staircase := staircase_at(query, arrays["time"])) is not None:
        names.append("Algorithm 1")
        curves.append(staircase[None])
    yield ["time", *names]
    yield from np.column_stack([arrays["time"], *(curve.T for curve in curves)]).tolist()


def _flow_names(part: str, panel: Panel) -> list[str]:
    """Return a name for each column of a part of a flow."""
    if part == "singular_values":
        products, k = panel.meta["products"], panel.meta["k"]
        return [f"{product} {i + 1}" for product in products for i in range(k)]
    if panel.arrays[part].ndim == 2:
        names = panel.query.run().names["coordinate"][: len(panel.arrays[part])]
        return [f"{part} {coordinate}" for coordinate in names]
    return [part]


def _values_over_time(panel: Panel) -> Rows:
    """Yield a column for each row of a picture, and for what is drawn with it."""
    arrays, meta = panel.arrays, panel.meta
    values = arrays["values"]
    if "stored" in arrays:  # an empty cell is not stored, nan is not a number
        missing = np.broadcast_to(arrays["stored"] == 0, values.shape)
        values = np.where(missing, "", values.astype(object))
    names = _row_names(panel)
    columns = [values.T]
    for name in ("background", "mean"):
        if name in arrays:
            names.append(name)
            columns.append(arrays[name])
    if "percentiles" in arrays:
        names += [f"{level}%" for level in meta["percentile_levels"]]
        columns.append(arrays["percentiles"].T)
    yield [meta.get("along", "x"), *names]
    yield from np.column_stack([arrays["x"], *columns]).tolist()


def _row_names(panel: Panel) -> list[str]:
    if "index" in panel.arrays:
        return [str(i) for i in panel.arrays["index"].tolist()]
    names = panel.query.run().names[panel.meta["axis"]]
    return [names[row] for row in panel.arrays["rows"].tolist()]


ROWS: dict[str, Callable[[Panel], Rows]] = {
    "scalars": _scalars,
    "spectrum": _spectrum,
    "ranks": _ranks,
    "curves": _curves,
    "compare": _comparison,
    "theory/flow": _flow,
}
