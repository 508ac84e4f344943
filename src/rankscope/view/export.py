"""A panel as a table of comma-separated values; names of files are text there too."""

import csv
import io
import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rankscope.view.columns import MOST_COLUMNS
from rankscope.view.listed import LISTED
from rankscope.view.opened import TooLarge
from rankscope.view.panels import PANELS
from rankscope.view.python_lines import python_lines
from rankscope.view.query import Query
from rankscope.view.spectra import MOST_HEIGHT
from rankscope.view.theory import flow_parts, staircase_at

MOST_CELLS = 2_000_000
PATIENCE, PAUSE = 60.0, 0.05  # seconds
Answer = TypeVar("Answer")
# A spreadsheet runs what begins so, and names are whatever a file says.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
DRAWN = {"ranks": "spectrum", "curves": "compare"}  # tables beside a picture: what answers them


def export(query: Query) -> tuple[str, str]:
    """Return the text of the file and its kind, csv or python."""
    kind = query.choice("file", "csv", "python")
    panel = query.choice("panel", *PANELS, *LISTED, *DRAWN)
    if kind == "python":
        return python_lines(query, panel), kind
    rows = _listed(query, panel) if panel in LISTED else _table(query, panel)
    file = io.StringIO()  # lines end as in RFC 4180; other ends leave "\r" in a name unquoted
    csv.writer(file).writerows([_safe(cell) for cell in row] for row in rows)
    return file.getvalue(), kind


def _listed(query: Query, panel: str) -> Iterator[Sequence[Any]]:
    answer, rows = LISTED[panel]
    return rows(_complete(lambda: answer(query), lambda known: known), query)


def _table(query: Query, panel: str) -> Iterator[Sequence[Any]]:
    parameters = dict(query.parameters.multi_items())
    fitting = MOST_CELLS // (2 * MOST_HEIGHT)  # times of spectra
    most = {"width": fitting if panel == "spectra" else MOST_COLUMNS, "height": MOST_HEIGHT}
    full = {name: str(size) for name, size in most.items() if name not in parameters}
    items = [item for item in query.parameters.multi_items() if item[0] not in ("format", "file")]
    wanted = [*items, ("format", "float32"), *full.items()]
    whole = Query(type(query.parameters)(wanted), query.library)
    picture = PANELS[DRAWN.get(panel, panel)]
    arrays, meta = _complete(lambda: unpacked(picture(whole)), lambda answer: answer[1])
    if sum(array.size for array in arrays.values()) > MOST_CELLS:
        raise TooLarge(
            f"that is more than {MOST_CELLS} numbers; zoom in, or use the lines of Python"
        )
    yield from _rows(panel, arrays, meta, query)


def _complete(ask: Callable[[], Answer], meta: Callable[[Answer], Mapping[str, Any]]) -> Answer:
    """Return an answer in which no number stands for one that is not known yet."""
    end = time.monotonic() + PATIENCE
    while meta(answer := ask()).get("complete") is False:
        if time.monotonic() > end:
            raise TimeoutError("the numbers are still being computed; try again in a minute")
        time.sleep(PAUSE)
    return answer


def _rows(
    panel: str, arrays: dict[str, np.ndarray], meta: dict[str, Any], query: Query
) -> Iterator[Sequence[Any]]:
    if panel == "scalars":
        for along, names in meta["names"].items():
            yield [along, *names]
            yield from np.column_stack([arrays[f"x:{along}"], arrays[f"values:{along}"].T]).tolist()
    elif panel == "spectrum":
        parts = [name for name in ("now", "start", "change") if arrays[name].size]
        names = [*parts, *(["chance"] * bool(arrays["chance"].size))]
        names += [f"energy_{name}" for name in parts]
        yield ["index", *(name.replace("_", " ") for name in names)]
        longest = max((arrays[name].size for name in names), default=0)
        for i in range(longest):
            yield [i + 1, *(arrays[n][i].item() if i < arrays[n].size else "" for n in names)]
    elif panel == "ranks":
        ranks = {name: meta["ranks"][name] for name in ("start", "now", "change")}
        yield ["rank", *(name for name, known in ranks.items() if known)]
        for name in ranks["now"]:
            title = f"{name}% of the energy" if name.isdigit() else f"{name} rank"
            yield [title, *(known[name] for known in ranks.values() if known)]
    elif panel == "curves":
        yield ["curve", "seeds", meta["align"], "value", "first", "last"]
        x, wanted = arrays["x"], query.number("step")
        at = len(x) - 1 if wanted is None else int(np.abs(x - wanted).argmin()) if len(x) else -1
        for curve, values in zip(meta["curves"], arrays["values"], strict=True):
            known = values[~np.isnan(values)]
            ends = known[[0, -1]].tolist() if known.size else [None, None]
            here = [x[at].item(), values[at].item()] if len(x) else [None, None]
            yield [curve["label"], curve["count"], *here, *ends]
    elif panel == "compare":
        labels = [curve["label"] for curve in meta["curves"]]
        yield [
            meta["align"],
            *(f"{label}{end}" for label in labels for end in ("", " low", " high")),
        ]
        bands = np.stack([arrays["values"], arrays["low"], arrays["high"]], axis=1)
        yield from np.column_stack([arrays["x"], bands.reshape(-1, len(arrays["x"])).T]).tolist()
    elif panel == "theory/flow":
        shown = [name for name in flow_parts(query) if name in arrays]
        yield ["time", *_flow_names(shown, arrays, meta, query)]
        curves = [np.atleast_2d(arrays[name]) for name in shown]
        if (staircase := staircase_at(query, arrays["time"])) is not None:
            curves.append(staircase[None])
        yield from np.column_stack([arrays["time"], *(curve.T for curve in curves)]).tolist()
    else:
        values = arrays["values"]
        if "stored" in arrays:  # an empty cell is not stored, nan is not a number
            missing = np.broadcast_to(arrays["stored"] == 0, values.shape)
            values = np.where(missing, "", values.astype(object))
        beside: list[str] = [name for name in ("background", "mean") if name in arrays]
        columns = [values.T, *(arrays[name] for name in beside)]
        if "percentiles" in arrays:
            beside += [f"{level}%" for level in meta["percentile_levels"]]
            columns.append(arrays["percentiles"].T)
        yield [meta.get("along", "x"), *_column_names(arrays, meta, query), *beside]
        yield from np.column_stack([arrays["x"], *columns]).tolist()


def _flow_names(
    shown: list[str], arrays: dict[str, np.ndarray], meta: dict[str, Any], query: Query
) -> Iterator[str]:
    """Yield a name for each column of the table of a flow."""
    for name in shown:
        if name == "singular_values":
            yield from (f"{part} {k + 1}" for part in meta["products"] for k in range(meta["k"]))
        elif arrays[name].ndim == 2:
            names = query.run().names["coordinate"][: len(arrays[name])]
            yield from (f"{name} {coordinate}" for coordinate in names)
        else:
            yield name
    if staircase_at(query, arrays["time"]) is not None:
        yield "Algorithm 1"


def _column_names(
    arrays: dict[str, np.ndarray], meta: dict[str, Any], query: Query
) -> Iterable[str]:
    if "index" in arrays:
        return [str(i) for i in arrays["index"].tolist()]
    names = query.run().names[meta["axis"]]
    return [names[row] for row in arrays["rows"].tolist()]


def _safe(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(FORMULA):
        return f"'{cell}"
    return cell


def unpacked(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays and description of a frame."""
    (length,) = struct.unpack_from("<I", data, 4)
    meta = json.loads(data[8 : 8 + length])
    arrays = {}
    for name, array in meta.pop("arrays").items():
        count = int(np.prod(array["shape"], dtype=int))
        start = 8 + length + array["offset"]
        values = np.frombuffer(data, array["dtype"], count, start)
        arrays[name] = values.reshape(array["shape"])
    return arrays, meta
