"""Claim Y10 of yunis2024: queries and keys align best of all pairs (caption of figure 3)."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import base_runs_of, per_base_run, relative_alignment

QUERIES_KEYS = "qk"


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if Q-K has the largest median a / background of all kinds of pairs.

    It is read at the end, at the base decay. Kinds with a single pair, such as input and output
    layer, and kinds without a value take no part. Without Q-K, or any other kind, the seed cannot
    tell.
    """
    end = relative_alignment(ds.isel(step=[-1])).isel(step=0)
    kinds = end["pair_kind"].to_numpy()
    names, counts = np.unique(kinds, return_counts=True)
    medians = {str(kind): float(end[kinds == kind].median()) for kind in names[counts > 1]}
    known = {kind: median for kind, median in medians.items() if not np.isnan(median)}
    own = known.get(QUERIES_KEYS)
    best = max((median for kind, median in known.items() if kind != QUERIES_KEYS), default=None)
    row: dict[str, Cell] = {"best other": best, **known}
    if own is None or best is None:
        return Measured(rows=(row,))
    return Measured(own / best if best > 0 else None, own > best, (row,))


Y10 = Rule(
    claim="Y10",
    sentence="queries and keys align best of all pairs in the Transformer",
    quantity="median a / background of queries and keys over that of the best other kind",
    bound="> 1",
    measure=measure,
    needs=base_runs_of("lm"),
    table="median a / background at the end by kind of pair",
)
