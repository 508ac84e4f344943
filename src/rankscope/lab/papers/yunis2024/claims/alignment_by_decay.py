"""Claim Y5 of yunis2024: weight decay strengthens alignment, most in the Transformer (figure 5)."""

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import all_met, count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.claims.transformer_lead import transformer_leads
from rankscope.lab.papers.yunis2024.runs import (
    Sweep,
    decay_sweeps,
    neighbours,
    overlaps,
    sweeps,
)

RATIO = 1.2
SHARE = 0.6
MOST_DIRECTIONS = 10
ROUNDING = 6  # decimals; keeps a rank of 3 from being 2.9999999


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if raw overlaps rise from decay 0 to the largest uncollapsed decay.

    The mean of A_ii over i <= k is read at the end of both runs. k is the smaller effective rank
    of the pair's matrices at the largest decay, rounded down, between 1 and 10. A part of a matrix
    counts with the effective rank of the whole.

    1. Its median over pairs is at least 1.2 times that at decay 0.
    2. It rises in 60% of pairs.

    "Most in the Transformer" is judged by itself, where lm and another network are there: at the
    largest decay, the median over pairs of the normalised a is larger in lm than in any other
    network at the same seed. A network without that seed leaves open whether lm is the largest.
    """
    all_sweeps = list(sweeps(runs))
    yield from map(_rise, all_sweeps)
    yield from _lead_of_transformer(all_sweeps)


def _rise(sweep: Sweep) -> Measured:
    if sweep.ends is None:
        lack = f"{sweep.place}: decay 0 or every larger decay collapsed or is not declared"
        return Measured(remarks=(*sweep.left_out, lack)).at(sweep.base, sweep.seed)
    directions = leading_directions(sweep.ends[1])
    before, after = (mean_overlap(ds, directions) for ds in sweep.ends)
    rise = after - before
    tally = count(rise > 0, measured=rise)
    start, end = (float(values.where(rise.notnull()).median()) for values in (before, after))
    row: dict[str, Cell] = {
        "largest decay": f"{max(sweep.runs):g}",
        "median at decay 0": start,
        "median at the largest": end,
        "rises": tally.share,
        "exceptions": str(tally),
        "median k": float(directions.median()),
    }
    met = all_met([end >= RATIO * start if tally.counted else None, tally.at_least(SHARE)])
    ratio = end / start if start else None
    return Measured(ratio, met, (row,), {"rises": tally}, sweep.left_out).at(sweep.base, sweep.seed)


def leading_directions(ds: xr.Dataset) -> xr.DataArray:
    """(pair): how many directions are compared; NaN if a matrix has no effective rank at the end.

    It is the smaller effective rank of the two matrices, rounded down, from 1 to 10.
    """
    ends = ds[["singular_values"]].isel(step=[-1]).rankscope.whole()
    names = ends["matrix"].to_numpy()
    rank_of = dict(zip(names, ends.rankscope.effective_rank()[0].to_numpy(), strict=True))
    whole_of = dict(zip(ds["matrix"].to_numpy(), ds["part_of"].to_numpy(), strict=True))

    def rank(matrix: str) -> float:
        while whole := whole_of.get(matrix):
            matrix = whole
        return float(rank_of.get(matrix, math.nan))

    pairs = neighbours(ds[["alignment"]])
    sides = [[rank(name) for name in pairs[end].to_numpy()] for end in ("earlier", "later")]
    smaller = np.floor(np.round(np.minimum(*map(np.array, sides)), ROUNDING))
    return pairs["pair"].copy(data=np.clip(smaller, 1, MOST_DIRECTIONS))


def mean_overlap(ds: xr.Dataset, directions: xr.DataArray) -> xr.DataArray:
    """(pair): mean raw overlap at the end of so many leading directions of each pair."""
    end = neighbours(overlaps(ds.isel(step=[-1])))["alignment"].isel(step=0, drop=True)
    return end.where(end["i"] <= directions).mean("i")


def _lead_of_transformer(all_sweeps: list[Sweep]) -> Iterator[Measured]:
    """Measure how far the median of lm lies above the largest of the other networks."""
    for sweep, lead, others, complete in transformer_leads(all_sweeps, _median):
        leads = None if lead is None else lead > 0
        yield Measured(
            lead,
            all_met([leads, True if complete else None]),
            part="most of all networks",
            quantity=f"median normalised a less the largest of {others} at the same "
            "seed, each at its largest uncollapsed decay",
        ).at(sweep.base, sweep.seed)


def _median(sweep: Sweep) -> float | None:
    """Median over pairs of the normalised a at the end of the largest decay; None without one."""
    largest = max(sweep.runs, default=0.0)
    if not largest:
        return None
    end = neighbours(overlaps(sweep.runs[largest].isel(step=[-1])))
    median = float(end.rankscope.mean_alignment(of="alignment_normalized").median())
    return None if math.isnan(median) else median


Y5 = Rule(
    claim="Y5",
    sentence="more weight decay, stronger alignment, most in the Transformer",
    quantity="median overlap of leading directions at the largest decay, over that at decay 0",
    bound=f">= {RATIO:g}, and it rises in >= {SHARE:.0%} of pairs",
    measure=measure,
    needs=decay_sweeps,
    table="raw overlap of the leading k directions at the end, median over pairs",
    changed=True,
    reason="The first rule averages ten directions also where fewer carry the matrix, and asks for "
    "a trend over all decays.",
)
