"""All singular values of one matrix over time, as an image and as percentile lines."""

from collections.abc import Iterator

import numpy as np

from rankscope.view.frames import Scale, packed, value_range
from rankscope.view.lengths import length_of, whole_length
from rankscope.view.opened import Opened
from rankscope.view.quantities import LEADING
from rankscope.view.query import Mistake, Query

HEIGHT, MOST_HEIGHT = 256, 1024
LEVELS = (0, 5, 25, 50, 75, 95, 100)
PART_BYTES = 16 * 1024 * 1024


def spectra(query: Query) -> bytes:
    """Return the singular values of one matrix, index x time, in a logarithmic code."""
    opened = query.run()
    stored_as, axis = spectrum_of(query, opened)
    row = query.row(opened, axis)
    positions = query.span().positions(opened.x)
    k = length_of(opened, stored_as, axis, row)
    height = query.integer("height", HEIGHT, least=2, most=MOST_HEIGHT)
    index = np.unique(np.linspace(0, max(0, k - 1), min(height, max(1, k))).round().astype(int))
    values = np.empty((len(index), len(positions)), np.float32)
    stored = np.zeros(len(positions), bool)
    percentiles = np.full((len(LEVELS), len(positions)), np.nan, np.float32)
    for target, part in _parts(opened, stored_as, row, positions, k):
        stored[target] = ~np.isnan(part).all(1)
        values[:, target] = part[:, index].T if k else np.nan
        ordered = np.sort(part, axis=1)
        ordered[np.isnan(part).any(axis=1)] = np.nan  # it failed, or only its head is stored
        places = [round(level / 100 * max(0, k - 1)) for level in LEVELS]
        percentiles[:, target] = ordered[:, places].T if k else np.nan
    stored |= opened.is_odd(positions, axis, row)
    scale = Scale.of(values, "log", low=query.number("low"), high=query.number("high"))
    if scale.low <= 0 or scale.high <= 0:
        raise Mistake("low and high of a logarithmic scale are above 0")
    as_bytes = query.choice("format", "uint8", "float32") == "uint8"
    arrays = {
        "values": scale.bytes_of(values, stored) if as_bytes else values,
        "stored": stored.astype(np.uint8),
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "index": index.astype(np.int32),
        "percentiles": percentiles,
        **_norms(opened, stored_as, positions, axis, row),
    }
    meta = {"k": k, "name": opened.names[axis][row], "percentile_levels": LEVELS, "of": stored_as}
    meta |= {"whole_k": whole_length(opened, stored_as, axis, row)}
    meta |= {"row": row, "axis": axis, "along": opened.along, "commit": opened.commit}
    return packed(arrays, meta | {"scale": scale.to_json(), "range": value_range(values)})


def _norms(
    opened: Opened, of: str, positions: np.ndarray, axis: str, row: int
) -> dict[str, np.ndarray]:
    """Return the Frobenius norms that runs with leading values store beside them."""
    name = norm_of(of)
    if name not in opened.ds or not len(positions):
        return {}
    part = slice(int(positions[0]), int(positions[-1]) + 1)
    norms = opened.read(name, **{opened.along: part, axis: row})[positions - positions[0]]
    return {"norms": norms.astype(np.float64)}


def norm_of(of: str) -> str:
    """Return the name of the norms beside leading values; "" for whole spectra."""
    return of.replace(LEADING, "leading_frobenius") if LEADING in of else ""


def spectrum_of(query: Query, opened: Opened) -> tuple[str, str]:
    """Return the stored spectra that are asked for, and the axis of their rows."""
    stored = query.text("of", "singular_values")
    array = opened.ds.data_vars.get(stored)
    if array is None or array.ndim != 3 or array.dims[0] != opened.along:
        raise LookupError("this run has no such spectra; take of from /api/run")
    return stored, str(array.dims[1])


def _parts(
    opened: Opened, of: str, row: int, positions: np.ndarray, k: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the spectra at some columns, a bounded part of the run at a time."""
    rows = max(1, PART_BYTES // max(1, opened.ds[of].dtype.itemsize * max(1, k)))
    start = 0
    while start < len(positions):
        first = int(positions[start])
        stop = int(np.searchsorted(positions, first + rows))
        last = int(positions[stop - 1]) + 1
        part = opened.spectra(of, slice(first, last), row, k)
        yield slice(start, stop), part[positions[start:stop] - first]
        start = stop
