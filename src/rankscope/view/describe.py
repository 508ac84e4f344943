"""The description of a run: its axes, everything it can show, its scalars."""

from typing import Any

from rankscope.view.frames import plain
from rankscope.view.library import Library
from rankscope.view.opened import Opened
from rankscope.view.quantities import name_of_spectra, quantities
from rankscope.view.query import Query

MOST_ATTRS, MOST_TEXT = 100, 2_000
HIDDEN = {"declaration", "manifest", "coverage", "append_axes", "rankscope_schema", "samples"}


def describe(query: Query) -> dict[str, Any]:
    """Return what the page needs to know of a run before it asks for numbers."""
    opened = query.run()
    shown = quantities(opened.ds, opened.along)
    return {
        "id": opened.place.key,
        "commit": opened.commit,
        "summary": _row(query.library, opened),
        "along": opened.along,
        "snapshots": len(opened.x),
        **_ends(opened),
        "axes": {
            axis: {"size": len(names), "rows": opened.rows_of(axis)}
            for axis, names in opened.names.items()
            if axis != "stage"
        },
        "quantities": [quantity.to_json() for quantity in shown],
        "default": {"of": shown[0].of, "metric": shown[0].metric} if shown else None,
        "spectra": _spectra(opened),
        "diagonals": _diagonals(opened),
        "scalars": [
            {
                "name": name,
                "along": along,
                "label": name.removesuffix("_every_step").replace("_", " ")
                + (", every step" if along != opened.along else ""),
                "loss": "loss" in name,
            }
            for name, along in opened.scalars().items()
        ],
        "theory": "z" in opened.ds or "stage_time" in opened.ds,
        "heads": "product" in opened.names and "singular_values" in opened.ds,
        "attrs": _attrs(opened),
    }


def _row(library: Library, opened: Opened) -> dict[str, Any] | None:
    return next((row for row in library.summaries() if row["id"] == opened.place.key), None)


def _ends(opened: Opened) -> dict[str, Any]:
    positive = opened.x[opened.x > 0]
    ends: dict[str, Any] = plain(
        {
            "first": opened.x[0] if len(opened.x) else None,
            "last": opened.x[-1] if len(opened.x) else None,
            "positive_from": positive[0] if len(positive) else None,
        }
    )
    return ends


def _spectra(opened: Opened) -> list[dict[str, Any]]:
    spectra = []
    for name, array in opened.ds.data_vars.items():
        if array.ndim == 3 and array.dims[0] == opened.along and array.dims[2] in ("k", "r"):
            stored = str(name)
            without = stored.replace("change_", "")
            spectra.append(
                {
                    "of": stored,
                    "axis": str(array.dims[1]),
                    "label": name_of_spectra(stored),
                    "k": array.shape[2],
                    "change_of": without if without != stored and without in opened.ds else None,
                }
            )
    return spectra


def _diagonals(opened: Opened) -> list[dict[str, Any]]:
    return [
        {
            "of": str(name),
            "axis": str(array.dims[1]),
            "dim": "i",
            "size": array.sizes["i"],
            "label": str(name).replace("_", " "),
        }
        for name, array in opened.ds.data_vars.items()
        if array.ndim == 3 and array.dims[0] == opened.along and array.dims[2] == "i"
    ]


def _attrs(opened: Opened) -> dict[str, Any]:
    """Return the attributes that are short."""
    shown: dict[str, Any] = {}
    for name, value in list(opened.attrs.items())[:MOST_ATTRS]:
        if name in HIDDEN:
            continue
        if isinstance(value, str):
            shown[str(name)] = value[:MOST_TEXT]
        elif isinstance(value, int | float | bool):
            shown[str(name)] = value
    short: dict[str, Any] = plain(shown)
    return short
