"""Claim Y11 of yunis2024: the centre of a filter aligns better than its edges (App. C.1)."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import count
from rankscope.lab.papers.yunis2024.runs import base_runs_of, overlaps, per_base_run, share_met

SHARE = 0.8


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
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
    quantity="share of convolution pairs whose centre tap is above the mean of the others",
    bound=f">= {SHARE:g}",
    measure=measure,
    needs=base_runs_of("vgg", "unet"),
    table="a of the centre tap against the mean of a over the other taps",
)
