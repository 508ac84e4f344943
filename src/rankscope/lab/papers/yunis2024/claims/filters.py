"""Claim Y11 of yunis2024: the centre of a filter aligns better than its edges (App. C.1)."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import base_runs_of, overlaps, per_base_run, share_met

RESAMPLES = 10_000
PERCENTILE = 2.5
SHARE = 0.8


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if the centre tap is ahead on average, and surely so.

    d is a at the centre tap less its mean over the other taps, over the centre pair's background.
    It is read at the end and the base decay, for pairs of kind "conv" whose other taps are stored.
    Both the mean of d over pairs and the 2.5th percentile of its bootstrap have to be above 0.
    """
    leads = leads_of_centres(ds).dropna("pair").to_numpy()
    if not len(leads):
        return Measured()
    mean, low = float(leads.mean()), bootstrapped_percentile(leads)
    row: dict[str, Cell] = {"mean of d": mean, "2.5th percentile": low, "pairs": len(leads)}
    return Measured(mean, mean > 0 and low > 0, (row,))


def leads_of_centres(ds: xr.Dataset) -> xr.DataArray:
    """(pair): (a at the centre tap - mean a of the other taps) / background, at the end."""
    centre, others = centre_and_others(ds, "alignment")
    background = ds["alignment_background"].isel(step=-1, drop=True).sel(pair=centre["pair"])
    leads: xr.DataArray = (centre - others) / background
    return leads


def bootstrapped_percentile(values: np.ndarray) -> float:
    """2.5th percentile of the mean over 10,000 resamples, always the same for the same values."""
    count = len(values)
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    return float(np.percentile(values[drawn].mean(1), PERCENTILE))


@per_base_run
def measure_first(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if a at the centre tap exceeds its mean over the other taps in 80%.

    Counted are pairs of kind "conv" whose other taps are stored, at the end and the base decay.
    Overlaps are raw, as in the paper. The table also has the share for tap vectors scaled to unit
    length, which tells whether the angle differs or only the length.
    """
    raw = centre_and_others(ds, "alignment")
    tally, normalized = (
        count(taps[0] > taps[1], measured=taps[0] + taps[1])
        for taps in (raw, centre_and_others(ds, "alignment_normalized"))
    )
    cells = {
        "median centre / others": float((raw[0] / raw[1]).median()),
        "share, normalised": normalized.share,
    }
    return share_met(tally, SHARE, "centre above others", cells)


def centre_and_others(ds: xr.Dataset, variable: str) -> xr.DataArray:
    """(2, pair): final a at the centre tap, and its mean over the other taps."""
    end = overlaps(ds.isel(step=[-1])).rankscope.mean_alignment(of=variable).isel(step=0)
    kinds = end["pair_kind"].to_numpy()
    ends = [*zip(end["earlier"].to_numpy(), end["later"].to_numpy(), strict=True)]
    taps: dict[tuple[str, str], list[float]] = {between: [] for between in ends}
    for position in np.flatnonzero(kinds == "tap"):
        taps[ends[position]].append(float(end[position]))
    centres = [p for p in np.flatnonzero(kinds == "conv") if taps[ends[p]]]
    values = [[float(end[p]) for p in centres], [float(np.mean(taps[ends[p]])) for p in centres]]
    return xr.DataArray(
        np.array(values).reshape(2, -1),
        dims=("tap", "pair"),
        coords={"pair": end["pair"].to_numpy()[centres]},
    )


Y11 = Rule(
    claim="Y11",
    sentence="filters align best at their centre",
    quantity="mean over pairs of (a at the centre - mean a of the other taps) / background",
    bound="> 0, and the 2.5th percentile of its bootstrap > 0",
    measure=measure,
    needs=base_runs_of("vgg", "unet"),
    table="lead of the centre tap over the others, in backgrounds",
    changed=True,
    reason="The first rule counts pairs, however small the difference.",
)
Y11_FIRST = Rule(
    claim="Y11-first",
    headline="Y11",
    sentence=Y11.sentence,
    quantity="share of convolution pairs whose centre tap is above the mean of the others",
    bound=f">= {SHARE:g}",
    measure=measure_first,
    needs=base_runs_of("vgg", "unet"),
    table="a of the centre tap against the mean of a over the other taps",
)
