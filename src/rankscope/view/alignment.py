"""Alignment of pairs: all over their background, or the diagonal of one over time."""

import numpy as np

from rankscope.view.frames import packed
from rankscope.view.heat import MOST_ROWS, heat_of
from rankscope.view.opened import Opened
from rankscope.view.quantities import quantities
from rankscope.view.query import Query


def alignment(query: Query) -> bytes:
    """Return pairs x time over background; for one pair the diagonal of its overlaps over time."""
    opened = query.run()
    stored = query.text("of", "alignment")
    known = quantities(opened.ds, opened.along)
    chosen = [one for one in known if one.of == stored and one.metric == "relative_alignment"]
    if not chosen:
        raise LookupError("this run stores no alignment of pairs; track it with pairs")
    rows = query.rows(opened, chosen[0].axis, most=MOST_ROWS)
    if query.has("row") or query.has("pair"):
        return _diagonal(query, opened, stored, chosen[0].axis, int(rows[0]))
    return heat_of(query, opened, chosen[0], rows)


def _diagonal(query: Query, opened: Opened, of: str, axis: str, row: int) -> bytes:
    positions = query.span().positions(opened.x)
    part = slice(int(positions[0]), int(positions[-1]) + 1) if len(positions) else slice(0)
    inside = positions - (positions[0] if len(positions) else 0)
    values = opened.read(of, **{opened.along: part, axis: row})[inside]
    background = opened.read(f"{of}_background", **{opened.along: part, axis: row})[inside]
    stored = ~np.isnan(values) | opened.is_odd(positions, axis, row)[:, None]
    known = ~np.isnan(values).all(0) if len(values) else np.zeros(values.shape[1], bool)
    size = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
    first = values[:, :10]
    count = np.maximum((~np.isnan(first)).sum(1), 1)
    mean = np.where(np.isnan(first).all(1), np.nan, np.nansum(first, axis=1) / count)
    arrays = {
        "values": values[:, :size].T.astype(np.float32),
        "background": background.astype(np.float32),
        "mean": mean.astype(np.float32),
        "stored": stored[:, :size].T.astype(np.uint8),
        "x": opened.x[positions].astype(np.float64),
        "positions": positions.astype(np.int32),
        "index": opened.ds["i"].to_numpy()[:size].astype(np.int32),
    }
    info = opened.rows_of(axis)[row]
    meta = {name: info.get(name) for name in ("name", "label", "earlier", "later", "chance")}
    return packed(arrays, meta | {"row": row, "along": opened.along, "commit": opened.commit})
