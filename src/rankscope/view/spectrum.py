"""One spectrum at one time, beside the start, the change, chance and noise."""

import math
from typing import Any

import numpy as np
import xarray as xr

from rankscope import metrics
from rankscope.view.chance import edges, expected_values
from rankscope.view.frames import packed
from rankscope.view.opened import Opened
from rankscope.view.quantities import METRICS
from rankscope.view.query import Query
from rankscope.view.spectra import length_of, spectrum_of

SHARES = (50, 90, 99)
NAMED = {
    "effective": "effective_rank",
    "stable": "stable_rank",
    "numerical": "numerical_rank",
    **{str(share): f"energy_rank_{share}" for share in SHARES},
}


def spectrum(query: Query) -> bytes:
    """Return one spectrum, that of the start and of the change, with ranks and noise levels."""
    opened = query.run()
    stored, axis = spectrum_of(query, opened)
    row = query.row(opened, axis)
    position = _position(query, opened)
    k = length_of(opened, stored, axis, row)
    now, start = (_read(opened, stored, axis, row, place, k) for place in (position, 0))
    change_of = _change_of(opened, stored)
    change = np.zeros(0, np.float32)
    if change_of and (axis != "matrix" or row in opened.whole(axis)):
        change_k = length_of(opened, change_of, axis, row)
        change = _read(opened, change_of, axis, row, position, change_k)
    meta, chance = _noise(opened, stored, axis, row, now)
    arrays = {"now": now, "start": start, "change": change, "chance": chance}
    arrays |= {f"energy_{name}": _energy(arrays[name]) for name in ("now", "start", "change")}
    ranks = {
        "now": _ranks(opened, stored, axis, row, position),
        "start": _ranks(opened, stored, axis, row, 0),
        "change": _ranks(opened, change_of, axis, row, position) if change.size else None,
    }
    meta |= {
        "x": opened.x[position],
        "position": position,
        "k": k,
        "of": stored,
        "row": row,
        "axis": axis,
        "status": _status(opened, axis, row, position),
        "ranks": ranks,
        "commit": opened.commit,
    }
    return packed({name: array.astype(np.float32) for name, array in arrays.items()}, meta)


def _position(query: Query, opened: Opened) -> int:
    if not len(opened.x):
        raise LookupError("this run has no snapshot yet; train on, then look again")
    wanted = query.number("step")
    if wanted is not None:
        return int(np.argmin(np.abs(opened.x.astype(np.float64) - wanted)))
    if not query.has("at"):
        return len(opened.x) - 1
    return query.integer("at", None, most=len(opened.x) - 1)


def _read(opened: Opened, of: str, axis: str, row: int, position: int, k: int) -> np.ndarray:
    return opened.read(of, **{opened.along: position, axis: row, "k": slice(0, k)})


def _change_of(opened: Opened, of: str) -> str | None:
    if "change_" in of:
        return None
    name = of.replace("singular_values", "change_singular_values")
    return name if name != of and name in opened.ds else None


def _energy(S: np.ndarray) -> np.ndarray:
    """Return the share of the sum of squares that the largest values hold."""
    squares = S.astype(np.float64) ** 2
    total = squares.sum()
    return np.cumsum(squares) / total if total > 0 else np.full(len(S), np.nan)


def _ranks(
    opened: Opened, of: str | None, axis: str, row: int, position: int
) -> dict[str, float | None]:
    """Return the ranks of one spectrum, computed as everywhere else."""
    if of is None or axis not in ("matrix", "product"):
        return {}
    names = {of, "singular_values"} if of == "change_singular_values" else {of}
    part = opened.ds[sorted(names)].isel({opened.along: [position], axis: [row]}).load()
    if "m" not in part and "product_m" not in part:
        return {}
    return {
        name: _one(METRICS[metric].method(part.rankscope, of=of)) for name, metric in NAMED.items()
    }


def _one(value: xr.DataArray) -> float | None:
    number = float(value.item())
    return number if math.isfinite(number) else None


def _status(opened: Opened, axis: str, row: int, position: int) -> str | None:
    if axis != "matrix" or "status" not in opened.ds:
        return None
    words = str(opened.ds["status"].attrs.get("flag_meanings", "")).split()
    code = int(opened.read("status", **{opened.along: position, axis: row}))
    return words[code] if 0 <= code < len(words) else None


def _noise(
    opened: Opened, of: str, axis: str, row: int, now: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """Return name, shape and noise levels, and the spectrum of a random matrix."""
    info = opened.rows_of(axis)[row] if axis in opened.names else {}
    meta: dict[str, Any] = {key: info.get(key) for key in ("name", "label", "m", "n")}
    m, n = info.get("m"), info.get("n")
    norm = float(np.linalg.norm(now.astype(np.float64)))
    if not m or not n or axis != "matrix" or not math.isfinite(norm):
        return meta | {"noise": None}, np.zeros(0)
    noise: dict[str, Any] = {
        "marchenko_pastur": edges(m, n, norm),
        "scale": norm / math.sqrt(m * n),
        "label": "a random matrix of the same norm",
        "solver_floor": float(metrics.solver_floor(now, m, n)),
        "rounding_floor": _rounding_floor(opened, info),
    }
    return meta | {"noise": noise}, expected_values(m, n, norm)


def _rounding_floor(opened: Opened, info: dict[str, Any]) -> float | None:
    """Return the level below which a change is rounding, from the norm of the weights."""
    stored = info.get("dtype")
    if stored not in metrics.LIMITS or "singular_values" not in opened.ds:
        return None
    row, k = opened.row("matrix", info["name"]), int(info["k"])
    last = _read(opened, "singular_values", "matrix", row, len(opened.x) - 1, k)
    norm = float(np.linalg.norm(last.astype(np.float64)))
    return float(metrics.rounding_floor(stored, norm, info["m"], info["n"]))
