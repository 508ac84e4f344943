"""A panel as a table of comma-separated values; names of files are text there too."""

import csv
import io
import json
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from rankscope.view.columns import MOST_COLUMNS
from rankscope.view.listed import LISTED
from rankscope.view.opened import TooLarge
from rankscope.view.panel_rows import Panel, Rows, panel_rows
from rankscope.view.panels import PANELS
from rankscope.view.python_lines import python_lines
from rankscope.view.query import Query
from rankscope.view.spectra import MOST_HEIGHT

MOST_CELLS = 2_000_000
PATIENCE, PAUSE = 60.0, 0.05  # seconds
Answer = TypeVar("Answer")
# A spreadsheet runs what begins so, and names are whatever a file says.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
DRAWN = {"ranks": "spectrum", "curves": "compare"}  # panels that answer for tables beside them


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


def _listed(query: Query, panel: str) -> Rows:
    answer, rows = LISTED[panel]
    return rows(_complete(lambda: answer(query), lambda known: known), query)


def _table(query: Query, panel: str) -> Rows:
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
    return panel_rows(panel, Panel(arrays, meta, query))


def _complete(ask: Callable[[], Answer], meta: Callable[[Answer], Mapping[str, Any]]) -> Answer:
    """Return an answer in which no number stands for one that is not known yet."""
    end = time.monotonic() + PATIENCE
    while meta(answer := ask()).get("complete") is False:
        if time.monotonic() > end:
            raise TimeoutError("the numbers are still being computed; try again in a minute")
        time.sleep(PAUSE)
    return answer


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
