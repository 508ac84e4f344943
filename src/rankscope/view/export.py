"""A panel as a table of comma-separated values, or as the Python lines that reproduce it."""

import csv
import io
import json
import keyword
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.view.alignment import alignment
from rankscope.view.columns import MOST_COLUMNS
from rankscope.view.compare import compare
from rankscope.view.heat import heads, heat, lines
from rankscope.view.moved import moved
from rankscope.view.opened import TooLarge
from rankscope.view.quantities import VALUE
from rankscope.view.query import Query
from rankscope.view.series import scalars
from rankscope.view.spectra import spectra
from rankscope.view.spectrum import spectrum

MOST_CELLS = 2_000_000
Panel = Callable[[Query], bytes]
FRAMES: dict[str, Panel] = {
    "heat": heat,
    "lines": lines,
    "scalars": scalars,
    "spectra": spectra,
    "spectrum": spectrum,
    "alignment": alignment,
    "heads": heads,
    "compare": compare,
}
# A spreadsheet runs what begins so, and names are whatever a file says.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(query: Query) -> tuple[str, str]:
    """Return the text of the file and its kind, csv or python."""
    kind = query.choice("kind", "csv", "python")
    panel = query.choice("panel", *FRAMES, "moved")
    if kind == "python":
        return python_lines(query, panel), kind
    rows = _moved(query) if panel == "moved" else _table(query, panel)
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_safe(cell) for cell in row] for row in rows)
    return file.getvalue(), kind


def python_lines(query: Query, panel: str) -> str:
    """Return lines that compute what a panel shows; every name is a Python string."""
    keys = query.texts("run") if panel == "compare" else [query.text("run")]
    lines_of_code = ["import rankscope as rs", ""]
    for number, key in enumerate(keys[:24]):
        opened = query.library.open(key)
        name = "run" if len(keys) == 1 else f"run_{number}"
        lines_of_code.append(f"{name} = rs.open({str(opened.place.path)!r})")
        lines_of_code += _code(query, panel, name)
    return "\n".join(lines_of_code) + "\n"


def _code(query: Query, panel: str, run: str) -> Iterator[str]:
    opened = query.library.open(query.texts("run")[0])
    along, first, last = opened.along, query.number("from"), query.number("to")
    if panel != "spectrum" and (first is not None or last is not None):
        yield f"{run} = {run}.sel({_argument(along, f'slice({first}, {last})')})"
    if panel == "scalars":
        names = query.texts("name") or list(opened.scalars())
        yield f"print({run}[{names!r}].to_dataframe())"
        return
    if panel in ("spectra", "spectrum"):
        stored = query.text("of", "singular_values")
        axis = str(opened.ds[stored].dims[1]) if stored in opened.ds else "matrix"
        name = opened.names[axis][query.row(opened, axis)]
        yield f"spectra = {run}[{stored!r}].sel({_argument(axis, repr(name))})"
        if panel == "spectrum":
            wanted = query.number("step")
            position = query.integer("at", len(opened.x) - 1, most=max(0, len(opened.x) - 1))
            at = (
                f"sel({_argument(along, str(wanted))}, method='nearest')"
                if wanted is not None
                else f"isel({_argument(along, str(position))})"
            )
            yield f"print(spectra.{at}.values)"
        else:
            yield "print(spectra.values)"
        return
    quantity = query.quantity(opened)
    call = f"{run}[{quantity.of!r}]"
    if quantity.metric != VALUE:
        name, options = quantity.metric, f"of={quantity.of!r}"
        if name.startswith("energy_rank_"):
            name, share = "energy_rank", int(name.rpartition("_")[2]) / 100
            options = f"fraction={share}, {options}"
        call = f"{run}.rankscope.{name}({options})"
    yield f"values = {call}"
    if any(query.has(name) for name in ("rows", "row", "matrix", "pair")):
        rows = query.rows(opened, quantity.axis, most=MOST_COLUMNS)
        names = [opened.names[quantity.axis][row] for row in rows]
        yield f"values = values.sel({_argument(quantity.axis, repr(names))})"
    if panel == "moved":
        yield f"print((values.max({along!r}) - values.min({along!r})).to_series().sort_values())"
    else:
        yield f"print(values.transpose({quantity.axis!r}, {along!r}).values)"


def _argument(name: str, value: str) -> str:
    """Return a named argument; a name that a file chose stays a string if it is no identifier."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return f"{name}={value}" if plain else f"**{{{name!r}: {value}}}"


def _table(query: Query, panel: str) -> Iterator[Sequence[Any]]:
    parameters = dict(query.parameters.multi_items())
    full = {} if "width" in parameters else {"width": str(MOST_COLUMNS)}
    items = [item for item in query.parameters.multi_items() if item[0] not in ("format", "kind")]
    wanted = [*items, ("format", "float32"), *full.items()]
    arrays, meta = unpacked(FRAMES[panel](Query(type(query.parameters)(wanted), query.library)))
    if sum(array.size for array in arrays.values()) > MOST_CELLS:
        raise TooLarge(f"that is more than {MOST_CELLS} numbers; give a smaller width=")
    yield from _rows(panel, arrays, meta, query)


def _rows(
    panel: str, arrays: dict[str, np.ndarray], meta: dict[str, Any], query: Query
) -> Iterator[Sequence[Any]]:
    if panel == "scalars":
        for along, names in meta["names"].items():
            yield [along, *names]
            yield from np.column_stack([arrays[f"x:{along}"], arrays[f"values:{along}"].T]).tolist()
    elif panel == "spectrum":
        names = [name for name in ("now", "start", "change", "chance") if arrays[name].size]
        yield ["index", *names]
        longest = max((arrays[name].size for name in names), default=0)
        for i in range(longest):
            yield [i + 1, *(arrays[n][i].item() if i < arrays[n].size else "" for n in names)]
    elif panel == "compare":
        labels = [curve["label"] for curve in meta["curves"]]
        yield [
            meta["align"],
            *(f"{label}{end}" for label in labels for end in ("", " low", " high")),
        ]
        bands = np.stack([arrays["values"], arrays["low"], arrays["high"]], axis=1)
        yield from np.column_stack([arrays["x"], bands.reshape(-1, len(arrays["x"])).T]).tolist()
    else:
        yield [meta.get("along", "x"), *_column_names(panel, arrays, meta, query)]
        yield from np.column_stack([arrays["x"], arrays["values"].T]).tolist()


def _column_names(
    panel: str, arrays: dict[str, np.ndarray], meta: dict[str, Any], query: Query
) -> Iterable[str]:
    if "index" in arrays:
        return [str(i) for i in arrays["index"].tolist()]
    names = query.run().names[meta["axis"]]
    return [names[row] for row in arrays["rows"].tolist()]


def _moved(query: Query) -> Iterator[Sequence[Any]]:
    columns = ("name", "label", "kind", "block", "moved", "first", "last", "low", "high", "at")
    yield columns
    for row in moved(query)["rows"]:
        yield [row[column] for column in columns]


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
