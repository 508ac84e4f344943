"""Claim Y11 of yunis2024: the centre of a filter aligns better than its edges (App. C.1)."""

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import Rule, Seen, judge_base_runs
from rankscope.lab.claims.tally import count
from rankscope.lab.experiment import Results
from rankscope.lab.reading import overlaps
from rankscope.lab.verdict import Verdict

SHARE = 0.8

RULE = Rule(
    claim="Y11",
    sentence="the centre tap of a filter aligns better than its edges",
    bound=f">= {SHARE:g}",
    quantity="share of convolution pairs whose centre tap is above the mean of the others",
    columns=("share", "median centre / others", "share, normalised", "exceptions"),
    title="a of the centre tap against the mean of a over the other taps",
    networks=("vgg", "unet"),
)


def centre_of_filters_aligns_best(results: Results) -> Verdict:
    """Y11. The centre tap of a filter aligns better than its edges.

    Yes: the overlap a at the centre tap is above the mean over the other taps in >= 80% of conv
    pairs, at the end and the base decay. Overlaps are raw, as in the paper; beside them stands the
    share with cut vectors of unit length, which says whether the angle differs or only the length.
    Counted are pairs of kind "conv" whose other taps are stored, as pairs of kind "tap".
    """
    return judge_base_runs(RULE, results, _see)


def _see(ds: xr.Dataset) -> Seen | None:
    raw, normalized = (centre_and_others(ds, of) for of in ("alignment", "alignment_normalized"))
    if not raw.sizes["pair"]:
        return None
    found, fairly = (count(e[0] > e[1], measured=e[0] + e[1]) for e in (raw, normalized))
    typical = float((raw[0] / raw[1]).median())
    row = (found.share, typical, fairly.share, str(found))
    return Seen((found.share, found.at_least(SHARE)), row, (("centre above others", found),))


def centre_and_others(ds: xr.Dataset, of: str) -> xr.DataArray:
    """(2, pair): a at the end of the centre tap, and its mean over the other taps."""
    end = overlaps(ds.isel(step=[-1])).rankscope.mean_alignment(of=of).isel(step=0)
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
