"""All singular values of one matrix over time, as an image and as percentile lines."""

from collections.abc import Iterator

import numpy as np

from rankscope.view.frames import Scale, packed, value_range
from rankscope.view.opened import Opened
from rankscope.view.query import Mistake, Query

HEIGHT, MOST_HEIGHT = 256, 1024
LEVELS = (0, 5, 25, 50, 75, 95, 100)
PART_BYTES = 16 * 1024 * 1024


def spectra(query: Query) -> bytes:
    """Return the singular values of one matrix, index x time, in a logarithmic code."""
    opened = query.run()
    stored, axis = spectrum_of(query, opened)
    row = query.row(opened, axis)
    positions = query.span().positions(opened.x)
    k = length_of(opened, stored, axis, row)
    height = query.integer("height", HEIGHT, least=2, most=MOST_HEIGHT)
    index = np.unique(np.linspace(0, max(0, k - 1), min(height, max(1, k))).round().astype(int))
    values = np.empty((len(index), len(positions)), np.float32)
    percentiles = np.full((len(LEVELS), len(positions)), np.nan, np.float32)
    for target, part in _parts(opened, stored, row, positions, k):
        values[:, target] = part[:, index].T if k else np.nan
        ordered = np.sort(part, axis=1)  # NaN at the end, as in a spectrum that failed
        places = [round(level / 100 * max(0, k - 1)) for level in LEVELS]
        percentiles[:, target] = ordered[:, places].T if k else np.nan
    scale = Scale.of(values, "log", low=query.number("low"), high=query.number("high"))
    if scale.low <= 0 or scale.high <= 0:
        raise Mistake("low and high of a logarithmic scale are above 0")
    as_bytes = query.choice("format", "uint8", "float32") == "uint8"
    arrays = {
        "values": scale.bytes_of(values) if as_bytes else values,
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "index": index.astype(np.int32),
        "percentiles": percentiles,
    }
    meta = {"k": k, "name": opened.names[axis][row], "percentile_levels": LEVELS, "of": stored}
    meta |= {"row": row, "axis": axis, "along": opened.along, "commit": opened.commit}
    return packed(arrays, meta | {"scale": scale.to_json(), "range": value_range(values)})


def spectrum_of(query: Query, opened: Opened) -> tuple[str, str]:
    """Return the stored spectra that are asked for, and the axis of their rows."""
    stored = query.text("of", "singular_values")
    array = opened.ds.data_vars.get(stored)
    if array is None or array.ndim != 3 or array.dims[0] != opened.along:
        raise LookupError("this run has no such spectra; take of from /api/run")
    return stored, str(array.dims[1])


def length_of(opened: Opened, of: str, axis: str, row: int) -> int:
    """Return the number of singular values of one matrix; the rest of its row is padding."""
    stored = int(opened.ds[of].shape[2])
    shape = opened.rows_of(axis)[row] if axis in opened.names else {}
    if "k" not in shape or opened.ds[of].dims[2] != "k":
        return stored
    length = int(shape["k"])
    if of.startswith("product_change_"):  # a difference of products of inner width r
        length = min(shape["m"], shape["n"], 2 * length)
    return min(stored, length)


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
