"""The overview of a run in a notebook cell: scalars, a heat map, what moved; no server.

The drawings are those of the page. Their modules travel inside the widget.
"""

import json
import re
from pathlib import Path

import anywidget
import numpy as np
import traitlets
import xarray as xr

from rankscope.view.columns import Span
from rankscope.view.discovery import Place
from rankscope.view.events import find_events
from rankscope.view.frames import Scale, packed
from rankscope.view.moved import ranking
from rankscope.view.opened import Kept, Opened
from rankscope.view.quantities import quantities
from rankscope.view.table import Table
from rankscope.view.tables import Values

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[\w./-]+\.m?js)"')
COLUMNS, ROWS, POINTS, MOVED, SCALARS = 512, 400, 48, 20, 3
NOWHERE = Place("", Path(), Path(), "", "")


def overview_frame(ds: xr.Dataset, *, of: str | None = None, metric: str | None = None) -> bytes:
    """Return what the widget draws, as one frame."""
    opened = Opened(NOWHERE, Kept(), ds=ds)
    known = quantities(opened.ds, opened.along)
    chosen = [one for one in known if of in (None, one.of) and metric in (None, one.metric)]
    if not chosen or not len(opened.x):
        names = ", ".join(dict.fromkeys(f"{one.of}: {one.metric}" for one in known))
        raise ValueError(f"this run has nothing to show there; it has {names or 'no snapshot yet'}")
    quantity = chosen[0]
    positions = Span(width=COLUMNS).positions(opened.x)
    table = Table(opened, quantity.of, quantity.axis)
    for _ in table.work([quantity.metric], positions):
        pass
    values, _ = table.column(quantity.metric).at(positions)
    rows = opened.whole(quantity.axis)
    moved = ranking(opened, quantity, rows, positions, values[:, rows], POINTS, MOVED)
    rows = rows[:ROWS]
    scale = Scale.of(values[:, rows], quantity.scale)
    scalars = _scalars(opened)
    columns = [opened.read(name)[positions].astype(np.float64) for name in scalars]
    described = opened.rows_of(quantity.axis)
    arrays = {
        "heat": scale.bytes_of(values[:, rows].T),
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "rows": rows.astype(np.int32),
        "scalars": np.array(columns, np.float64).reshape(len(columns), len(positions)),
    }
    meta = {
        "title": str(ds.attrs.get("model", "")) or f"{len(opened.x)} snapshots",
        "metric_label": quantity.label,
        "along": opened.along,
        "scale": scale.to_json(),
        "rows_info": [described[row] for row in rows],
        "scalar_names": scalars,
        "moved": moved,
        "events": list(find_events(opened, positions, quantity, Values(values, 1.0))),
    }
    return packed(arrays, meta)


def bundle(entry: Path) -> str:
    """Return one module that holds `entry` and all it imports, each as a blob of its own."""
    sources: dict[Path, str] = {}
    _collect(entry.resolve(), sources, ())
    order = list(sources)
    lines = ["const urls = [];"]
    for path, text in sources.items():
        places = [order.index(_target(path, match[2])) for match in IMPORT.finditer(text)]
        pieces = IMPORT.sub(lambda match: f'{match[1]}"\0"', text).split("\0")
        parts: list[str] = [json.dumps(pieces[0])]
        for place, piece in zip(places, pieces[1:], strict=True):
            parts += [f"urls[{place}]", json.dumps(piece)]
        lines.append(
            f"urls.push(URL.createObjectURL(new Blob([{', '.join(parts)}], "
            '{type: "text/javascript"})));'
        )
    lines.append("export default (await import(urls[urls.length - 1])).default;")
    return "\n".join(lines)


def _collect(path: Path, sources: dict[Path, str], above: tuple[Path, ...]) -> None:
    """Add a module after all that it imports."""
    assert path not in above, f"{path} imports itself by way of others"
    text = path.read_text()
    for match in IMPORT.finditer(text):
        target = _target(path, match[2])
        if target not in sources:
            _collect(target, sources, (*above, path))
    sources[path] = text


def _target(path: Path, name: str) -> Path:
    target = (path.parent / name).resolve()
    assert target.is_relative_to(STATIC.resolve()), f"{path} imports {name}, which is elsewhere"
    return target


def _scalars(opened: Opened) -> list[str]:
    """Return the scalars to draw: losses first, then what was logged."""
    names = [
        name
        for name, along in opened.scalars().items()
        if along == opened.along and not name.startswith("tracker_")
    ]
    return sorted(names, key=lambda name: "loss" not in name)[:SCALARS]


class Overview(anywidget.AnyWidget):
    """A widget that shows one run as it is now."""

    _esm = bundle(STATIC / "widget.js")
    _css = (STATIC / "widget.css").read_text()
    overview = traitlets.Bytes().tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)


def overview(ds: xr.Dataset, *, of: str | None = None, metric: str | None = None) -> Overview:
    """Return the widget of a run.

    of, metric: what the heat map shows, by default the normalised effective rank of weights.
    """
    return Overview(overview=overview_frame(ds, of=of, metric=metric))
