"""Claim Y1 of yunis2024: large singular values grow faster than small ones (figure 1)."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import count
from rankscope.lab.papers.yunis2024.runs import base_runs, per_base_run, share_met, with_values

SHARE = 0.9


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
    """Growth is log(end / start) at the base decay.

    A seed meets the bound if the mean of the top tenth of singular values grows more than the
    median value in 90% of matrices. The tenth of R = min(m, n) values has R // 10 of them, at
    least one. Matrices with a single value are not counted. A matrix cannot tell if its median
    value is zero at the start or all its values are zero at the end.
    """
    lead = lead_of_large_values(ds)
    tally = count(lead > 0, measured=lead)
    median = float(lead.median()) if tally.counted else None
    return share_met(tally, SHARE, "top tenth faster", {"median lead": median})


def lead_of_large_values(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): log growth of the mean of the top tenth less that of the median.

    NaN where the median starts at zero or the whole matrix ends there, infinite where only the
    median does.
    """
    ends = with_values(ds, 2).isel(step=[0, -1])
    top, middle = ends.rankscope.apply(top_decile), ends.rankscope.apply(np.median, axis=-1)
    alive = (middle[0] > 0) & (top[1] > 0)
    with np.errstate(divide="ignore"):
        growth = [np.log(values[1] / values[0].where(alive)) for values in (top, middle)]
    lead: xr.DataArray = growth[0] - growth[1]
    return lead


def top_decile(S: np.ndarray) -> np.ndarray:
    """Mean of the largest tenth of (..., k) descending values, at least one."""
    mean: np.ndarray = S[..., : max(1, S.shape[-1] // 10)].mean(-1)
    return mean


Y1 = Rule(
    claim="Y1",
    sentence="large singular values grow faster than small ones",
    quantity="share of matrices whose top tenth grows faster than the median",
    bound=f">= {SHARE:g}",
    measure=measure,
    needs=base_runs,
    table="log growth of the top tenth less that of the median value",
)
