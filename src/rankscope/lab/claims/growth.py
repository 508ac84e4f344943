"""Claim Y1 of yunis2024: large singular values grow faster than small ones (figure 1)."""

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import Rule, Seen, judge_base_runs
from rankscope.lab.claims.ranks import with_values
from rankscope.lab.claims.tally import count
from rankscope.lab.experiment import Results
from rankscope.lab.verdict import Verdict

SHARE = 0.9

RULE = Rule(
    claim="Y1",
    sentence="large singular values grow faster than small ones, in every network",
    bound=f">= {SHARE:g}",
    quantity="share of matrices whose top tenth grows faster than the median",
    columns=("share", "median lead", "exceptions"),
    title="log growth of the top tenth over that of the median value",
)


def large_values_grow_faster(results: Results) -> Verdict:
    """Y1. Large singular values grow faster than small ones, in every network.

    Yes: log growth of the mean top-decile value exceeds that of the median value in >= 90% of
    matrices. Growth is log(end / start) at the base decay; the decile of R = min(m, n) values has
    R // 10 of them, at least one. Matrices of one value, which is both, are not counted. Those
    whose median is zero at the start, or all of whose values are zero at the end, cannot tell.
    """
    return judge_base_runs(RULE, results, _see)


def _see(ds: xr.Dataset) -> Seen:
    lead = lead_of_large_values(ds)
    found = count(lead > 0, measured=lead)
    typical = float(lead.median()) if found.counted else None
    row = (found.share, typical, str(found))
    return Seen((found.share, found.at_least(SHARE)), row, (("top tenth faster", found),))


def lead_of_large_values(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): log growth of the mean of the top tenth less that of the median.

    NaN where the median starts at zero or the whole matrix ends there, infinite where only the
    median does.
    """
    ends = with_values(ds, 2).isel(step=[0, -1])
    top, middle = ends.rankscope.apply(top_decile), ends.rankscope.apply(_median)
    alive = (middle[0] > 0) & (top[1] > 0)
    with np.errstate(divide="ignore"):
        growths = (np.log(each[1] / each[0].where(alive)) for each in (top, middle))
        lead: xr.DataArray = next(growths) - next(growths)
    return lead


def top_decile(S: np.ndarray) -> np.ndarray:
    """Mean of the largest tenth of (..., k) values in descending order, of one at least."""
    mean: np.ndarray = S[..., : max(1, S.shape[-1] // 10)].mean(-1)
    return mean


def _median(S: np.ndarray) -> np.ndarray:
    return np.asarray(np.median(S, axis=-1))
