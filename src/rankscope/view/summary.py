"""The row of a run in the list: what it is, how far it came, what tracking cost."""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.store.archive import archive_source
from rankscope.store.chunk import Damage
from rankscope.store.source import Folder
from rankscope.store.stored_run import StoredRun
from rankscope.view.discovery import Place
from rankscope.view.gaps import broken_from
from rankscope.view.network_titles import network_title

SCALES = ("paper", "small", "smoke")
PAPER = re.compile(r"[a-z]+\d{4}")
COLLAPSED = 0.95  # of a constant predictor's loss, from which a training learned nothing
LOSSES = ("loss", "training_loss", "train_loss")
TAIL = 64  # values among which the last loss is looked for
MOST_TEXT = 300


def summary(place: Place) -> dict[str, Any]:
    """Return the row of a run; ValueError if it is damaged."""
    with _stored(place) as run:
        arrays, attrs = run.root.arrays, run.root.attrs
        sizes = {dim: n for array in arrays.values() for dim, n in _sizes(array)}
        growing = attrs.get("append_axes", "[]")
        growing = json.loads(growing) if isinstance(growing, str) else growing
        along = next((axis for axis in ("step", "time", *growing) if axis in sizes), "step")
        length = sizes.get(along, 0)
        row = _empty(place) | _named(place.path, attrs)
        row |= {
            "kind": _kind(arrays),
            "along": along,
            "snapshots": length,
            "matrices": sizes.get("matrix", 0),
            "products": sizes.get("product", 0),
            "pairs": sizes.get("pair", 0),
            "wall_seconds": _number(attrs.get("wall_seconds")),
            "started": _text(attrs.get("started")),
            "model": _text(attrs.get("model")),
        }
        if length and along in arrays:
            row["last"] = _number(run.read(along, length - 1).item())
        row |= _last_loss(run, along, length)
        if row["status"] == "done" and length and _is_collapsed(run, along, length):
            row["status"] = "collapsed"
        row |= _cost(run, along, length)
    return row


def damaged_summary(place: Place, damage: Exception) -> dict[str, Any]:
    """Return the row of a run that cannot be read."""
    return _empty(place) | {"status": "damaged", "error": str(damage)}


@contextlib.contextmanager
def _stored(place: Place) -> Iterator[StoredRun]:
    try:
        if place.is_archive:
            with archive_source(place.path) as source:
                yield StoredRun.at(source, lenient=True)
        else:
            run = StoredRun.at(Folder(place.path, within=place.root))
            if "rankscope_schema" not in run.root.attrs:
                raise ValueError("this is a Zarr group but not a run of rankscope")
            yield run
    except Damage as damage:
        raise ValueError(f"{place.name} is damaged: {damage}; restore it") from None


def _empty(place: Place) -> dict[str, Any]:
    modified, size = None, None
    with contextlib.suppress(OSError):
        status = (place.path if place.is_archive else place.path / "zarr.json").stat()
        modified, size = status.st_mtime, status.st_size if place.is_archive else None
    nothing = ("experiment", "network", "network_title", "variant", "decay", "scale", "seed")
    later = (
        "alpha_log10",
        "along",
        "snapshots",
        "last",
        "last_loss",
        "loss_broke",
        "matrices",
        "products",
        "pairs",
    )
    costs = ("tracker_seconds", "tracker_share", "wall_seconds", "started", "model", "lr_changes")
    return {
        "id": place.key,
        "name": place.name,
        "folder": place.folder,
        **dict.fromkeys([*nothing, *later, *costs]),
        "status": place.state,
        "kept": place.is_archive,
        "kind": "other",
        "error": None,
        "modified": modified,
        "bytes": size,
        "commit": place.commit,
    }


def _sizes(array: Any) -> Iterator[tuple[str, int]]:
    return zip(array.dims, array.shape, strict=True)


def _kind(arrays: Mapping[str, Any]) -> str:
    if "z" in arrays or "stage_time" in arrays or arrays.keys() >= {"time", "singular_values"}:
        return "theory"
    return "training" if {"singular_values", "leading_values"} & arrays.keys() else "other"


def _named(path: Path, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return experiment, network and variant, which the laboratory writes into the path."""
    parts = path.parts
    seed = attrs.get("seed")
    named: dict[str, Any] = {
        "seed": seed if isinstance(seed, int) else None,
        "decay": _number(attrs.get("decay")),
        "alpha_log10": _number(attrs.get("log10_alpha")),
    }
    if "declaration" not in attrs:
        return named
    inside = [i for i, part in enumerate(parts) if part in SCALES and i >= 2]
    papers = [i for i, part in enumerate(parts) if PAPER.fullmatch(part)]
    if inside:
        start, named["scale"] = inside[-1] - 2, parts[inside[-1]]
        rest = parts[inside[-1] + 1 : -1]
    elif papers and len(parts) > papers[-1] + 3:
        start, named["scale"] = papers[-1], "paper"
        rest = parts[start + 2 : -1]
    else:
        return named
    named["experiment"] = "/".join(parts[start : start + 2])
    named["network"] = rest[0] if rest else None
    named["network_title"] = network_title(named["experiment"], rest[0]) if rest else None
    named["variant"] = "/".join(rest[1:]) or None
    return named


def _last_loss(run: StoredRun, along: str, length: int) -> dict[str, Any]:
    """Return the last finite loss, and whether it stayed finite."""
    for name in LOSSES:
        array = run.root.arrays.get(name)
        if array is not None and array.dims == (along,) and length:
            values = run.read(name, slice(max(0, length - TAIL), length)).astype(float)
            finite = values[np.isfinite(values)]
            last = float(finite[-1]) if finite.size else None
            return {"last_loss": last, "loss_broke": broken_from(values) is not None}
    return {}


def _is_collapsed(run: StoredRun, along: str, length: int) -> bool:
    """Return whether a training of the laboratory ends no better than a constant predictor."""
    constant, array = (
        _number(run.root.attrs.get("constant_loss")),
        run.root.arrays.get("training_loss"),
    )
    if constant is None or array is None or array.dims != (along,):
        return False
    last = float(run.read("training_loss", length - 1))
    return math.isfinite(last) and last >= COLLAPSED * constant


def _cost(run: StoredRun, along: str, length: int) -> dict[str, Any]:
    """Return the seconds that training waited for the tracker, and their share."""
    attrs, arrays = run.root.attrs, run.root.arrays
    wall = _number(attrs.get("wall_seconds"))
    seconds = _number(attrs.get("tracking_seconds"))
    names = [name for name in ("tracker_copy_seconds", "tracker_wait_seconds") if name in arrays]
    if seconds is None and names and length <= 100_000:
        columns = [
            run.read(name, slice(0, length)) for name in names if arrays[name].dims == (along,)
        ]
        seconds = float(np.nansum(columns))
    share = seconds / wall if seconds is not None and wall else None
    return {"tracker_seconds": seconds, "tracker_share": share}


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return None if not isinstance(value, str) else value[:MOST_TEXT]
