"""Claims Y2 and Y12 of yunis2024: effective rank falls (figure 2), and seeds agree on it (App. D).

NER is the normalised effective rank: exp of the entropy over R = min(m, n).
"""

from collections.abc import Iterator
from dataclasses import replace

import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import Tally, count
from rankscope.lab.papers.yunis2024.runs import (
    base_runs,
    collapse_remark,
    per_base_run,
    share_met,
    stand_in_remark,
    with_values,
)
from rankscope.lab.training.outcome import collapsed

FALL = 0.01
FALLING_SHARE = 0.8
LEAST_WIDTH = 8

RANGE = 0.05
AGREEING_SHARE = 0.9


@per_base_run
def measure_fall(ds: xr.Dataset) -> Measured:
    """A seed meets the bound if NER(end) < NER(0) - 0.01 in 80% of matrices.

    Matrices with R >= 8 are counted, at the base decay. A matrix that is zero at the start or at
    the end has no NER and cannot tell.
    """
    ranks = with_values(ds, LEAST_WIDTH).isel(step=[0, -1]).rankscope.normalized_effective_rank()
    change = ranks[1] - ranks[0]
    tally = count(ranks[1] < ranks[0] - FALL, measured=change)
    median = float(change.median()) if tally.counted else None
    return share_met(tally, FALLING_SHARE, "NER falls", {"median change": median})


def measure_agreement(runs: Runs) -> Iterator[Measured]:
    """Yield the same share for every seed: that of all seeds together.

    It meets the bound if the final NER of 90% of matrices ranges over at most 0.05, at the base
    decay. A collapsed seed takes no part and cannot tell. Matrices with a single value, whose NER
    is always 1, are not counted. A matrix that ends at zero in some seed cannot tell.
    """
    for key in runs:
        reasons = {seed: collapsed(ds) for seed, ds in runs[key].items()}
        ranks = {seed: final_ranks(ds) for seed, ds in runs[key].items() if not reasons[seed]}
        tally = _agreement(list(ranks.values()))
        agreed = share_met(tally, AGREEING_SHARE, "range over seeds", {})
        for seed, reason in reasons.items():
            if reason:
                yield Measured(remarks=(collapse_remark(key, seed, reason),)).at(key, seed)
                continue
            row = {"median final NER": float(ranks[seed].median()), **agreed.rows[0]}
            yield replace(agreed, rows=(row,), remarks=tuple(stand_in_remark(key))).at(key, seed)


def _agreement(ranks_by_seed: list[xr.DataArray]) -> Tally:
    if len(ranks_by_seed) < 2:
        return Tally((), ())
    ranks = xr.concat(ranks_by_seed, "seed", coords="minimal", compat="override", join="exact")
    spread = ranks.max("seed", skipna=False) - ranks.min("seed", skipna=False)
    return count(spread <= RANGE, measured=spread)


def final_ranks(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): final NER of whole matrices with more than one value."""
    end = with_values(ds, 2).isel(step=[-1])
    ranks: xr.DataArray = end.rankscope.normalized_effective_rank()
    return ranks.isel(step=0, drop=True)


Y2 = Rule(
    claim="Y2",
    sentence="effective rank falls in nearly all matrices",
    quantity=f"share of matrices whose NER falls by more than {FALL:g}",
    bound=f">= {FALLING_SHARE:g}",
    measure=measure_fall,
    needs=base_runs,
    table=f"change of NER over training, matrices with R >= {LEAST_WIDTH}",
)
Y12 = Rule(
    claim="Y12",
    sentence="seeds agree closely on the effective rank",
    quantity=f"share of matrices whose final NER ranges over at most {RANGE:g}",
    bound=f">= {AGREEING_SHARE:g}",
    measure=measure_agreement,
    needs=base_runs,
    table="final NER of the median matrix, and its range over seeds for every matrix",
)
