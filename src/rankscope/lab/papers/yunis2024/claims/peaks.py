"""Claim Y3b of yunis2024: alignment peaks early, then diffuses (figure 3).

a is the mean of A_ii over i <= min(10, R), raw as in the paper (Eq. 3).
"""

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import (
    base_runs,
    in_second_half,
    per_base_run,
    relative_alignment,
    share_met,
)

EARLY_SHARE = 0.5
LEFT_OF_PEAK = 0.8
LEAST_PEAK = 1.5


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if the pair that figure 3 shows peaks early and high, and falls.

    a(t) / background is largest before half of the last step, is at least 1.5 there, and ends at
    80% of that or less. The base decay is read. A pair that is not stored, or ends with a matrix
    of zeros, cannot tell.
    """
    shown = ds.attrs.get("shown_pair", "")
    course = relative_alignment(ds.isel(pair=np.flatnonzero(ds["pair"].to_numpy() == shown)))
    values = course.transpose("step", "pair").to_numpy().ravel()
    if not len(values) or np.isnan(values[-1]):
        return Measured(remarks=(f"pair {shown!r} of figure 3 has no alignment at the end",))
    position = int(np.nanargmax(values))
    peak, left = float(values[position]), float(values[-1] / values[position])
    early = not in_second_half(ds)[position]
    row: dict[str, Cell] = {
        "pair": shown,
        "peak": peak,
        "at step": int(ds["step"][position]),
        "of": int(ds["step"][-1]),
        "end over peak": left,
    }
    return Measured(left, early and peak >= LEAST_PEAK and left <= LEFT_OF_PEAK, (row,))


@per_base_run
def measure_first(ds: xr.Dataset) -> Measured:
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


Y3B = Rule(
    claim="Y3b",
    sentence="alignment peaks early, then diffuses",
    quantity="a / background of the pair in figure 3 at the end, over its peak",
    bound=f"<= {LEFT_OF_PEAK:g}, with the peak >= {LEAST_PEAK:g} and in the first half of steps",
    measure=measure,
    needs=base_runs,
    table="a(t) / background of the pair that figure 3 shows",
    changed=True,
    reason="The first rule asks it of half of all pairs. The paper says it of the pairs it shows.",
)
Y3B_FIRST = Rule(
    claim="Y3b-first",
    headline="Y3b",
    sentence=Y3B.sentence,
    quantity="share of pairs that peak in the first third and end below 80% of the peak",
    bound=f">= {EARLY_SHARE:g}",
    measure=measure_first,
    needs=base_runs,
    table="share of pairs whose a(t) / background peaks in the first third, and whose end is below "
    "80% of the peak",
)
