"""The overview of a run, which needs no server: scalars, a heat map, what moved.

The drawings are those of the page. Their modules travel with the numbers.
"""

import json
import re
from pathlib import Path

import numpy as np
import xarray as xr

from rankscope.view.columns import Span
from rankscope.view.discovery import Place
from rankscope.view.events import find_events
from rankscope.view.frames import Scale, packed
from rankscope.view.moved import ranking
from rankscope.view.opened import ArrayCache, Opened
from rankscope.view.quantities import Quantity, quantities
from rankscope.view.summary import LOSSES
from rankscope.view.table import Table
from rankscope.view.tables import Values

STATIC = Path(__file__).parent / "static"
ENTRY, STYLE = STATIC / "widget.js", STATIC / "widget.css"
IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[\w./-]+\.m?js)"')
COLUMNS, ROWS, POINTS, MOVED, SCALARS = 512, 400, 48, 20, 3
DRAW_ALL = """\
const { default: overview } = await import(urls[urls.length - 1]);
for (const place of document.querySelectorAll("[data-overview]")) {
  const bytes = Uint8Array.from(atob(place.dataset.overview), (sign) => sign.charCodeAt(0));
  const values = { overview: new DataView(bytes.buffer), theme: "auto" };
  overview.render({ model: { get: (name) => values[name] }, el: place });
}"""
WEIGHTS = "singular_values"
RANKS = ("normalized_effective_rank", "stable_rank")  # the second of runs with leading values
NOWHERE = Place("", Path(), Path(), "", "")


def overview_frame(ds: xr.Dataset, *, of: str | None = None, metric: str | None = None) -> bytes:
    """Return what an overview draws, as one frame.

    of, metric: what the heat map shows, by default the normalised effective rank of weights.
    """
    opened = Opened(NOWHERE, ArrayCache(), ds=ds)
    quantity = _quantity(opened, of, metric)
    positions = Span(width=COLUMNS).positions(opened.x)
    table = Table(opened, quantity.of, quantity.axis)
    for _ in table.work([quantity.metric], positions):
        pass
    known = Values(*table.column(quantity.metric).at(positions))
    rows = opened.whole(quantity.axis)
    cells, stored = known.values[:, rows], known.stored[:, rows]
    moved = ranking(opened, quantity, rows, positions, cells, stored, POINTS, MOVED)
    rows, cells, stored = rows[:ROWS], cells[:, :ROWS], stored[:, :ROWS]
    scale = Scale.of(cells, quantity.colour_kind(cells))
    scalars = _scalars(opened)
    lines = [opened.read(name)[positions].astype(np.float64) for name in scalars]
    described = opened.rows_of(quantity.axis)
    arrays = {
        "heat": scale.bytes_of(cells.T, stored.T),
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "rows": rows.astype(np.int32),
        "scalars": np.array(lines, np.float64).reshape(len(lines), len(positions)),
    }
    meta = {
        "title": str(ds.attrs.get("model", "")) or f"{len(opened.x)} snapshots",
        "metric_label": quantity.label,
        "along": opened.along,
        "scale": scale.to_json(),
        "rows_info": [described[row] for row in rows],
        "scalar_names": [name.replace("_", " ") for name in scalars],
        "moved": moved,
        "events": list(find_events(opened, positions, quantity, known)),
    }
    return packed(arrays, meta)


def _quantity(opened: Opened, of: str | None, metric: str | None) -> Quantity:
    known = quantities(opened.ds, opened.along)
    chosen = [one for one in known if of in (None, one.of) and metric in (None, one.metric)]
    if not chosen or not len(opened.x):
        names = ", ".join(dict.fromkeys(f"{one.of}: {one.metric}" for one in known))
        raise ValueError(f"this run has nothing to show there; it has {names or 'no snapshot yet'}")
    return min(chosen, key=lambda one: (one.of != WEIGHTS, one.metric not in RANKS))


def bundle(entry: Path = ENTRY) -> str:
    """Return one module that holds `entry` and all it imports, and exports what it exports."""
    return f"{_modules(entry)}\nexport default (await import(urls[urls.length - 1])).default;"


def page_script() -> str:
    """Return a module that draws each element of a page whose data-overview is a frame in base64.

    It can stand inside a page: it holds no sign that ends a script.
    """
    return f"{_modules(ENTRY)}\n{DRAW_ALL}"


def _modules(entry: Path) -> str:
    """Return lines that list the modules in `urls`, each as a blob of its own, `entry` last."""
    sources: dict[Path, str] = {}
    _collect(entry.resolve(), sources, ())
    order = list(sources)
    lines = ["const urls = [];"]
    for path, text in sources.items():
        places = [order.index(_target(path, match[2])) for match in IMPORT.finditer(text)]
        pieces = IMPORT.sub(lambda match: f'{match[1]}"\0"', text).split("\0")
        parts: list[str] = [_literal(pieces[0])]
        for place, piece in zip(places, pieces[1:], strict=True):
            parts += [f"urls[{place}]", _literal(piece)]
        lines.append(
            f"urls.push(URL.createObjectURL(new Blob([{', '.join(parts)}], "
            '{type: "text/javascript"})));'
        )
    return "\n".join(lines)


def _literal(text: str) -> str:
    """Return a string of JavaScript that may stand inside HTML."""
    return json.dumps(text).replace("<", "\\u003c")


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
    """Return the scalars to draw: losses, which share an axis; without any, what was logged."""
    names = [
        name
        for name, along in opened.scalars().items()
        if along == opened.along and not name.startswith("tracker_")
    ]
    losses = [name for name in names if "loss" in name]
    known_kinds = ("loss", "training", "validation", "test")
    order = sorted(
        losses, key=lambda name: (name not in LOSSES, name.split("_")[0] not in known_kinds)
    )
    return (order or names)[:SCALARS]
