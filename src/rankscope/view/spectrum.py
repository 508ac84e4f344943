"""One spectrum at one time, beside the start, the change, chance and noise."""

import math
from typing import Any

import numpy as np

from rankscope import metrics
from rankscope.view.chance import edges, expected_values
from rankscope.view.frames import packed
from rankscope.view.lengths import length_of, whole_length
from rankscope.view.opened import Opened
from rankscope.view.quantities import LEADING
from rankscope.view.query import Query
from rankscope.view.spectra import norm_of, spectrum_of

SHARES = (50, 90, 99)
RANKS = ("effective", "stable", "numerical", *map(str, SHARES))


def spectrum(query: Query) -> bytes:
    """Return one spectrum, that of the start and of the change, with ranks and noise levels."""
    opened = query.run()
    stored, axis = spectrum_of(query, opened)
    row = query.row(opened, axis)
    position = _position(query, opened)
    info = opened.rows_of(axis)[row] if axis in opened.names else {}
    k = length_of(opened, stored, axis, row)
    now, start = (opened.spectra(stored, place, row, k) for place in (position, 0))
    changed = change_of(opened, stored)
    change = np.zeros(0, np.float32)
    if changed and (axis != "matrix" or row in opened.whole(axis)):
        change_k = length_of(opened, changed, axis, row)
        change = opened.spectra(changed, position, row, change_k)
    rounding = _rounding_floor(opened, info, axis, row, position)
    is_change = stored == "change_singular_values"
    norms = {
        "now": _norm(opened, stored, position, axis, row, now),
        "start": _norm(opened, stored, 0, axis, row, start),
        "change": _norm(opened, changed or "", position, axis, row, change),
    }
    noise, chance = _noise(info, axis, norms["now"])
    if noise is not None:
        noise |= {"solver_floor": _solver_floor(info, now), "rounding_floor": rounding}
    arrays = {"now": now, "start": start, "change": change, "chance": chance}
    arrays |= {f"energy_{name}": _energy(arrays[name], norm) for name, norm in norms.items()}
    if norm_of(stored):
        ranks = {name: _leading_ranks(arrays[name], norm) for name, norm in norms.items()}
    else:
        now_floor, start_floor = (
            rounding if is_change else _solver_floor(info, S) for S in (now, start)
        )
        change_floor = rounding if axis == "matrix" else _solver_floor(info, change)
        ranks = {
            "now": _ranks(now, now_floor),
            "start": _ranks(start, start_floor),
            "change": _ranks(change, change_floor),
        }
    meta: dict[str, Any] = {key: info.get(key) for key in ("name", "label", "m", "n")}
    meta |= {
        "x": opened.x[position],
        "position": position,
        "k": _head(now),
        "whole_k": whole_length(opened, stored, axis, row),
        "of": stored,
        "row": row,
        "axis": axis,
        "status": _status(opened, axis, row, position),
        "ranks": ranks | ({} if change.size else {"change": None}),
        "noise": noise,
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


def change_of(opened: Opened, of: str) -> str | None:
    """Return the name of the spectra of the change; None if the run has none, or `of` are these."""
    if "change_" in of:
        return None
    for whole in ("singular_values", LEADING):
        name = of.replace(whole, f"change_{whole}")
        if name != of and name in opened.ds:
            return name
    return None


def _norm(opened: Opened, of: str, when: int, axis: str, row: int, S: np.ndarray) -> float:
    """Return the Frobenius norm of a matrix, of which `S` may be a leading part."""
    if name := norm_of(of):
        return float(opened.read(name, **{opened.along: when, axis: row}))
    return float(np.linalg.norm(S.astype(np.float64)))


def _energy(S: np.ndarray, norm: float) -> np.ndarray:
    """Return the share of the sum of squares that the largest values hold."""
    squares = S.astype(np.float64) ** 2
    return np.cumsum(squares) / norm**2 if norm > 0 else np.full(len(S), np.nan)


def _leading_ranks(S: np.ndarray, norm: float) -> dict[str, float | None]:
    """Return the ranks that follow from leading values and the norm."""
    if not S.size:
        return {}
    stable = (norm / S[0]) ** 2 if S[0] > 0 else math.nan
    energy = {str(share): metrics.energy_rank(S, share / 100, norm=norm) for share in SHARES}
    ranks = {"stable": stable, **energy}
    return {name: _finite(float(rank)) for name, rank in ranks.items()}


def _head(S: np.ndarray) -> int:
    """Return the number of values that are stored; archives keep the largest alone of some."""
    known = int(np.count_nonzero(~np.isnan(S)))
    return known or S.size  # one that failed has none


def _ranks(S: np.ndarray, floor: float | None) -> dict[str, float | None]:
    """Return the ranks of one spectrum. floor: what counts as rounding."""
    if not S.size or _head(S) < S.size:
        return {}
    if not np.isfinite(S).all():
        return dict.fromkeys(RANKS)
    if floor is None:
        return {}
    ranks = {
        "effective": metrics.effective_rank(S),
        "stable": metrics.stable_rank(S),
        "numerical": metrics.numerical_rank(S, floor=floor),
        **{str(share): metrics.energy_rank(S, share / 100) for share in SHARES},
    }
    return {name: _finite(float(rank)) for name, rank in ranks.items()}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _solver_floor(info: dict[str, Any], S: np.ndarray) -> float | None:
    """Return the level below which values may be the solver's rounding."""
    if not info.get("m") or not info.get("n") or not S.size:
        return None
    return _finite(float(metrics.solver_floor(S, info["m"], info["n"])))


def _rounding_floor(
    opened: Opened, info: dict[str, Any], axis: str, row: int, position: int
) -> float | None:
    """Return the level below which a change of weights is rounding, from the norm of W."""
    stored = info.get("dtype")
    if axis != "matrix" or stored not in metrics.LIMITS or "singular_values" not in opened.ds:
        return None
    W = opened.spectra("singular_values", position, row, int(info["k"]))
    norm = float(np.linalg.norm(W.astype(np.float64)))
    return _finite(float(metrics.rounding_floor(stored, norm, info["m"], info["n"])))


def _status(opened: Opened, axis: str, row: int, position: int) -> str | None:
    if axis != "matrix" or "status" not in opened.ds:
        return None
    words = str(opened.ds["status"].attrs.get("flag_meanings", "")).split()
    code = int(opened.read("status", **{opened.along: position, axis: row}))
    return words[code] if 0 <= code < len(words) else None


def _noise(
    info: dict[str, Any], axis: str, norm: float
) -> tuple[dict[str, Any] | None, np.ndarray]:
    """Return the spread of a random matrix of the same norm, and its spectrum."""
    m, n = info.get("m"), info.get("n")
    if not m or not n or axis != "matrix" or not math.isfinite(norm):
        return None, np.zeros(0)
    noise: dict[str, Any] = {
        "marchenko_pastur": edges(m, n, norm),
        "scale": norm / math.sqrt(m * n),
        "label": "a random matrix of the same norm",
    }
    return noise, expected_values(m, n, norm)
