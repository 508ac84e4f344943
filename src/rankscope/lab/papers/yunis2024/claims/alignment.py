"""Claims Y3, Y3b and Y10 of yunis2024: alignment of neighbouring layers (figure 3).

a is the mean of A_ii over i <= min(10, R), raw as in the paper (Eq. 3). The background is the
measured mean off the diagonal of the same pair at the same time. A pair cannot tell while one of
its matrices is zero.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import Tally, all_met, count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import (
    base_runs,
    base_runs_of,
    neighbours,
    overlaps,
    per_base_run,
    relative_alignment,
    share_met,
)

AT_CHANCE = (0.75, 1.25)
AT_CHANCE_SHARE = 0.9
WEAK = 0.5
WEAK_SHARE = 0.9
TOP_SHARE = 0.5
EARLY_SHARE = 0.5
LEFT_OF_PEAK = 0.8
LAYER = re.compile(r"\bblocks\.\d+\.")


class Weakness(NamedTuple):
    """Tallies of pairs for the three parts of Y3."""

    at_chance: Tally
    weak: Tally
    top_above: Tally


PARTS = {
    "a(0) at chance": AT_CHANCE_SHARE,
    "a(t) weak": WEAK_SHARE,
    "top ranks above": TOP_SHARE,
}


@per_base_run
def measure_weakness(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if each of three parts has its share of pairs, at the base decay.

    1. a(0) / background is within 0.75-1.25 for 90% of pairs.
    2. a(t) <= 0.5 at every snapshot for 90% of pairs.
    3. At the end, the mean of A_ii over i <= 10 exceeds that over 50 < i <= 100 for half of the
       pairs. Only pairs with R > 50 count; without any, this part cannot tell.

    Layers that start as copies of one have the same a(0), so the first part counts each of their
    pairs once, in its first layer. By chance 70% of pairs meet the first part, and half the third:
    see Y3-median.
    """
    tallies = dict(zip(PARTS, weakness(ds), strict=True))
    met = all_met(tallies[part].at_least(share) for part, share in PARTS.items())
    margins = [
        tallies[part].share - share for part, share in PARTS.items() if tallies[part].counted
    ]
    row: dict[str, Cell] = {}
    for part, share in PARTS.items():
        tally = tallies[part]
        row |= {f"{part}, >= {share:g}": tally.share, f"{part}, exceptions": str(tally)}
    return Measured(min(margins, default=None), met, (row,), tallies)


@per_base_run
def measure_weakness_of_median(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if the median of a(0) / background over pairs is within 0.75-1.25.

    The other two parts are those of Y3. For random unit vectors |<u, v>| is half-normal: its
    deviation is 0.76 of its mean. A mean of ten is thus 1 +- 0.24 of background.
    """
    start = float(_start(ds).median())
    _, weak, top = weakness(ds)
    at_chance = None if np.isnan(start) else AT_CHANCE[0] <= start <= AT_CHANCE[1]
    met = all_met([at_chance, weak.at_least(WEAK_SHARE), top.at_least(TOP_SHARE)])
    row = {
        "median a(0) / background": start,
        f"a(t) weak, >= {WEAK_SHARE:g}": weak.share,
        f"top ranks above, >= {TOP_SHARE:g}": top.share,
    }
    return Measured(start, met, (row,))


def weakness(ds: xr.Dataset) -> Weakness:
    """Count pairs at chance at the start, never above 0.5, and whose top ranks stand out."""
    start = _start(ds)
    near = neighbours(overlaps(ds))
    largest = near.rankscope.mean_alignment().max("step")
    end = near["alignment"].isel(step=-1)
    above = _mean(end, 0, 10) - _mean(end, 50, 100)
    return Weakness(
        count((start >= AT_CHANCE[0]) & (start <= AT_CHANCE[1]), measured=start),
        count(largest <= WEAK, measured=largest),
        count(above > 0, measured=above),
    )


def _start(ds: xr.Dataset) -> xr.DataArray:
    """(pair): a(0) / background; pairs of layers that start as copies appear once."""
    start = relative_alignment(ds.isel(step=[0])).isel(step=0)
    if not declared(ds.attrs["declaration"], "copied_layers"):
        return start
    first: dict[str, int] = {}  # position by the name without the layer's number
    for position, name in enumerate(start["pair"].to_numpy()):
        first.setdefault(LAYER.sub("", name), position)
    return start.isel(pair=[*first.values()])


def _mean(diagonal: xr.DataArray, after: int, upto: int) -> xr.DataArray:
    return diagonal.sel(i=(diagonal["i"] > after) & (diagonal["i"] <= upto)).mean("i")


def declared(declaration: Any, field: str) -> Any:
    """Return the first field of that name anywhere in a stored declaration, or None."""
    if not isinstance(declaration, Mapping):
        return None
    if field in declaration:
        return declaration[field]
    values = (declared(entry, field) for entry in declaration.values())
    return next((value for value in values if value is not None), None)


@per_base_run
def measure_peak(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if half of the pairs peak early and fall, at the base decay.

    A pair does if a(t) / background is largest in the first third of snapshots and ends below 80%
    of that. The first third of T snapshots are those numbered 1 to T / 3, where number 1 is at the
    start. With T < 3 no pair can tell.
    """
    course = relative_alignment(ds).transpose("step", "pair")
    early, fallen = peaks_early(course), has_fallen(course)
    known = (course.max("step") + course.isel(step=-1)).where(course.sizes["step"] >= 3)
    tally = count(early & fallen, measured=known)
    cells = {
        "peak early": count(early, measured=known).share,
        "end below 80%": count(fallen, measured=known).share,
    }
    return share_met(tally, EARLY_SHARE, "peaks early, then falls", cells)


def peaks_early(course: xr.DataArray) -> xr.DataArray:
    """(pair): whether (step, pair) is highest in the first third of snapshots."""
    position = course.fillna(-np.inf).argmax("step")
    return (position + 1) * 3 <= course.sizes["step"]


def has_fallen(course: xr.DataArray) -> xr.DataArray:
    """(pair): whether the last of (step, pair) is below 80% of the highest."""
    return course.isel(step=-1) < LEFT_OF_PEAK * course.max("step")


@per_base_run
def measure_kinds(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if Q-K has the largest median a / background of all kinds of pairs.

    It is read at the end, at the base decay. Input and output layer are kinds of their own. A kind
    without a value takes no part. Without Q-K, or any other kind, the seed cannot tell.
    """
    end = relative_alignment(ds.isel(step=[-1])).isel(step=0)
    kinds = end["pair_kind"].to_numpy()
    medians = {str(kind): float(end[kinds == kind].median()) for kind in np.unique(kinds)}
    known = {kind: median for kind, median in medians.items() if not np.isnan(median)}
    own = known.get("qk")
    best = max((median for kind, median in known.items() if kind != "qk"), default=None)
    row: dict[str, Cell] = {"best other": best, **known}
    if own is None or best is None:
        return Measured(rows=(row,))
    return Measured(own / best if best > 0 else None, own > best, (row,))


Y3 = Rule(
    claim="Y3",
    sentence="alignment of neighbours is weak, absent at first, and in the top ranks only",
    quantity="how far the worst of three shares of pairs is above its bound (below 0: missed)",
    bound=">= 0",
    measure=measure_weakness,
    needs=base_runs,
    table="share of pairs: a(0) / background in 0.75-1.25 (layers that start as copies of one "
    "count once); a(t) <= 0.5 at every snapshot; top ranks above later ones at the end",
)
Y3_MEDIAN = replace(
    Y3,
    claim="Y3-median",
    headline="Y3",
    quantity="median over pairs of a(0) / background",
    bound=f"{AT_CHANCE[0]:g} to {AT_CHANCE[1]:g}; the other parts as in Y3",
    measure=measure_weakness_of_median,
    table="a(0) of the median pair; the other parts as in Y3",
    reason="We made this second rule before any run was judged. For random directions "
    "a(0) / background is 1 +- 0.24, so only 70% of pairs at chance lie within 0.75-1.25. Y3 asks "
    "for 90%.",
)
Y3B = Rule(
    claim="Y3b",
    sentence="alignment peaks early, then diffuses",
    quantity="share of pairs that peak in the first third and end below 80% of the peak",
    bound=f">= {EARLY_SHARE:g}",
    measure=measure_peak,
    needs=base_runs,
    table="share of pairs whose a(t) / background peaks in the first third, and whose end is below "
    "80% of the peak",
)
Y10 = Rule(
    claim="Y10",
    sentence="queries and keys align best of all pairs in the Transformer",
    quantity="median a / background of queries and keys over that of the best other kind",
    bound="> 1",
    measure=measure_kinds,
    needs=base_runs_of("lm"),
    table="median a / background at the end by kind of pair",
)
