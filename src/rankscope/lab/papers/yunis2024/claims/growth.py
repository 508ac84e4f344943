"""Claim Y1 of yunis2024: large singular values grow faster than small ones (figure 1)."""

from dataclasses import replace

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import count
from rankscope.lab.papers.yunis2024.runs import base_runs, per_base_run, share_met, with_values

SHARE = 0.9
LEAST_WIDTH = 20  # narrower matrices have a top tenth of one value


@per_base_run
def measure(ds: xr.Dataset) -> Measured:
    """A seed is measured as by the first rule, over matrices with R >= 20."""
    return _measure(lead_of_large_values(ds, least=LEAST_WIDTH))


@per_base_run
def measure_first(ds: xr.Dataset) -> Measured:
    """Growth is log(end / start) at the base decay.

    A seed meets the bound if the mean of the top tenth of singular values grows more than the
    median value in 90% of matrices. The tenth of R = min(m, n) values has R // 10 of them, at
    least one. Matrices with a single value are not counted. A matrix cannot tell if its median
    value is zero at the start or all its values are zero at the end.
    """
    return _measure(lead_of_large_values(ds))


def _measure(lead: xr.DataArray) -> Measured:
    tally = count(lead > 0, measured=lead)
    median = float(lead.median()) if tally.counted else None
    return share_met(tally, SHARE, "top tenth faster", {"median lead": median})


def lead_of_large_values(ds: xr.Dataset, *, least: int = 2) -> xr.DataArray:
    """(matrix): log growth of the mean of the top tenth less that of the median.

    NaN where the median starts at zero or the whole matrix ends there, infinite where only the
    median does. least: number of values of the narrowest matrix that is read.
    """
    ends = with_values(ds, least).isel(step=[0, -1])
    if not ends.sizes["matrix"]:
        return xr.DataArray([], coords={"matrix": ends["matrix"]})
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


Y1_FIRST = Rule(
    claim="Y1-first",
    headline="Y1",
    sentence="large singular values grow faster than small ones",
    quantity="share of matrices whose top tenth grows faster than the median",
    bound=f">= {SHARE:g}",
    measure=measure_first,
    needs=base_runs,
    table="log growth of the top tenth less that of the median value",
)
Y1 = replace(
    Y1_FIRST,
    claim="Y1",
    headline="",
    changed=True,
    quantity=f"share of matrices with R >= {LEAST_WIDTH} whose top tenth grows faster than the "
    "median",
    measure=measure,
    reason="The first rule also counts narrow matrices, whose top tenth is a single value.",
)
