"""Claims Y2 and Y12 of yunis2024: effective rank falls (figure 2), and seeds agree on it (App. D).

NER is the normalised effective rank: exp of the entropy over R = min(m, n).
"""

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import (
    Rule,
    Seen,
    judge_base_runs,
    nearest_decay,
    nothing_to_judge,
    with_decays,
)
from rankscope.lab.claims.tally import SeedTally, Tally, count, full_list
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, base, collapsed, whole
from rankscope.lab.verdict import Outcome, Table, Verdict, judge

FALL = 0.01
FALLING_SHARE = 0.8
LEAST_WIDTH = 8

RANGE = 0.05
AGREEING_SHARE = 0.9
AGREEMENT = "seeds agree closely on the effective rank"
AGREEMENT_BOUND = f">= {AGREEING_SHARE:g}"

FALLS = Rule(
    claim="Y2",
    sentence="effective rank falls over training in nearly all matrices",
    bound=f">= {FALLING_SHARE:g}",
    quantity=f"share of matrices whose NER falls by more than {FALL:g}",
    columns=("share", "median change", "exceptions"),
    title=f"change of NER over training, matrices with R >= {LEAST_WIDTH}",
)


def rank_falls(results: Results) -> Verdict:
    """Y2. Effective rank falls over training in nearly all matrices.

    Yes: NER(end) < NER(0) - 0.01 in >= 80% of matrices with R >= 8, at the base decay.
    Matrices that are zero at either end have no NER and cannot tell.
    """
    return judge_base_runs(FALLS, results, _see)


def _see(ds: xr.Dataset) -> Seen | None:
    wide = with_values(ds, LEAST_WIDTH).isel(step=[0, -1])
    if not wide.sizes["matrix"]:
        return None
    ranks = wide.rankscope.normalized_effective_rank()
    change = ranks[1] - ranks[0]
    found = count(ranks[1] < ranks[0] - FALL, measured=change)
    typical = float(change.median()) if found.counted else None
    row = (found.share, typical, str(found))
    return Seen((found.share, found.at_least(FALLING_SHARE)), row, (("NER falls", found),))


def seeds_agree(results: Results) -> Verdict:
    """Y12. Seeds agree closely on the effective rank.

    Yes: the range over seeds is <= 0.05 NER for >= 90% of matrices at the end, at the base decay.
    Of all seeds together there is one share, which each seed is given; a collapsed seed takes no
    part in it and cannot tell. Matrices of one value, whose NER is always 1, are not counted, and
    one that is zero at the end in some seed cannot tell.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows, tallies, evidence = [], list[SeedTally](), list[str]()
    for network in with_decays(results):
        evidence += nearest_decay(results, network)
        runs = base(results, network)
        reasons = {seed: collapsed(ds) for seed, ds in runs.items()}
        evidence += [
            f"{network}, seed {seed} collapsed: {why}" for seed, why in reasons.items() if why
        ]
        alive = [seed for seed, why in reasons.items() if not why]
        found = _agreement([runs[seed] for seed in alive])
        tallies.append(SeedTally(network, " ".join(map(str, alive)), "range over seeds", found))
        outcome = (found.share, found.at_least(AGREEING_SHARE))
        outcomes[network] = {s: (None, None) if why else outcome for s, why in reasons.items()}
        rows.append((network, found.share, str(found)))
    if not outcomes:
        return nothing_to_judge("Y12", AGREEMENT, BASE, AGREEMENT_BOUND)
    return judge(
        "Y12",
        AGREEMENT,
        outcomes,
        bound=AGREEMENT_BOUND,
        quantity=f"share of matrices whose final NER ranges over at most {RANGE:g}",
        evidence=evidence,
        tables=[
            Table(("network", "share", "exceptions"), tuple(rows), "range over seeds"),
            *full_list(tallies),
        ],
    )


def _agreement(seeds: list[xr.Dataset]) -> Tally:
    if len(seeds) < 2:
        return Tally((), ())
    ranks = xr.concat(
        [final_ranks(ds) for ds in seeds], "seed", coords="minimal", compat="override", join="exact"
    )
    spread = ranks.max("seed", skipna=False) - ranks.min("seed", skipna=False)
    return count(spread <= RANGE, measured=spread)


def final_ranks(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): NER at the end of whole matrices with more than one value."""
    end = with_values(ds, 2).isel(step=[-1])
    ranks: xr.DataArray = end.rankscope.normalized_effective_rank()
    return ranks.isel(step=0, drop=True)


def with_values(ds: xr.Dataset, least: int) -> xr.Dataset:
    """The spectra of whole matrices with at least so many singular values."""
    wholes = whole(ds[["singular_values"]])
    wide = np.minimum(wholes["m"].to_numpy(), wholes["n"].to_numpy()) >= least
    return wholes if wide.all() else wholes.isel(matrix=np.flatnonzero(wide))
