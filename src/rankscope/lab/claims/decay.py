"""Claims Y4 and Y5 of yunis2024: what weight decay does to rank and alignment (figures 4, 5)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.lab.claims.alignment import relative_alignment
from rankscope.lab.claims.base_runs import nothing_to_judge, with_decays
from rankscope.lab.claims.ranks import final_ranks
from rankscope.lab.claims.sweeps import LEAST_DECAYS, Sweep, by_seed, rank_correlation
from rankscope.lab.claims.tally import SeedTally, Tally, all_met, count, full_list
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

CORRELATION = 0.8
STEP = 0.05
SHARE = 0.8
STRONGEST = "strongest in lm"


@dataclass(frozen=True)
class Trend:
    """What should rise or fall with decay: `measure` gives (matrix) or (pair) of one run."""

    claim: str
    sentence: str
    name: str
    measure: Callable[[xr.Dataset], xr.DataArray]
    sign: int

    @property
    def bound(self) -> str:
        relation = "<= -" if self.sign < 0 else ">= "
        changed = f"changed by >= {STEP:g} from decay 0 in >= {SHARE:.0%} of them"
        return f"{relation}{CORRELATION:g}, and {changed}"


@dataclass(frozen=True)
class Response:
    """Of one seed: the median rank correlation with decay, and who moves far enough from 0.

    `far` is None where the run at decay 0 is not there or collapsed.
    """

    correlation: float
    far: Tally | None


def decay_lowers_rank(results: Results) -> Verdict:
    """Y4. More weight decay, lower rank.

    Yes: the median over matrices of Spearman(decay, final NER) <= -0.8, and NER drops from decay 0
    to the largest uncollapsed one by >= 0.05 in >= 80% of matrices. It needs >= 3 uncollapsed
    decays, decay 0 among them, or the seed cannot tell. Every decay that was run counts, that of
    figures 1-3 too. A matrix whose NER stays the same has correlation 0; those of one value, whose
    NER is always 1, are not counted, and one that is zero at the end of some run cannot tell.
    """
    trend = Trend("Y4", "more weight decay, lower rank", "final NER", final_ranks, -1)
    return _judge_trend(trend, results)


def decay_strengthens_alignment(results: Results) -> Verdict:
    """Y5. More weight decay, stronger alignment; strongest in the Transformer.

    Yes: the same as Y4 for a / background of pairs, rising: the median Spearman >= 0.8, and a rise
    by >= 0.05 from decay 0 to the largest uncollapsed one in >= 80% of pairs. And, as a row of its
    own where lm and another network are there: at its largest uncollapsed decay the median excess
    of lm, median over pairs of a / background - 1, is the largest, in every seed. The value of
    that row is the lead of lm, no correlation, and no part of the value of all.
    """
    sentence = "more weight decay, stronger alignment; strongest in the Transformer"
    trend = Trend("Y5", sentence, "final a / background", final_relative_alignment, 1)
    return _judge_trend(trend, results, besides=_strongest)


def final_relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(pair): a / background at the end."""
    return relative_alignment(ds.isel(step=[-1])).isel(step=0, drop=True)


# What else a claim says of the sweeps: outcomes that are no correlations, and a sentence on them.
Besides = Callable[[list[Sweep]], tuple[dict[str, dict[int, Outcome]], str]]


def _judge_trend(trend: Trend, results: Results, *, besides: Besides | None = None) -> Verdict:
    found = [sweep for network in with_decays(results) for sweep in by_seed(results, network)]
    if not found:
        return nothing_to_judge(trend.claim, trend.sentence, BASE, trend.bound)
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    tallies: list[SeedTally] = []
    for sweep in found:
        measured = {decay: trend.measure(ds) for decay, ds in sweep.runs.items()}
        response = respond(measured, trend.sign)
        outcomes.setdefault(sweep.network, {})[sweep.seed] = _outcome(response, trend)
        rows.append((sweep.network, sweep.seed, *_cells(measured, response)))
        if response and response.far:
            tallies.append(SeedTally(sweep.network, sweep.seed, "changes", response.far))
    others, said = besides(found) if besides else ({}, "")
    columns = ("network", "seed", "decays", f"median {trend.name}", "Spearman", "changed", "not")
    return judge(
        trend.claim,
        trend.sentence,
        outcomes | others,
        bound=trend.bound,
        quantity=f"median Spearman(decay, {trend.name})",
        evidence=[*_evidence(found), *([said] if said else [])],
        tables=[
            Table(columns, tuple(rows), f"{trend.name} by decay, uncollapsed runs"),
            *full_list(tallies),
        ],
        apart=tuple(others),
    )


def respond(measured: dict[float, xr.DataArray], sign: int) -> Response | None:
    """What decay, ascending, does to one seed; None with fewer than 3 uncollapsed decays."""
    if len(measured) < LEAST_DECAYS:
        return None
    values = np.stack([each.to_numpy() for each in measured.values()])  # (decay, matrix)
    correlations = rank_correlation(np.array([*measured]), values)
    known = correlations[~np.isnan(correlations)]
    if not len(known):
        return None
    change = sign * (measured[max(measured)] - measured[min(measured)])
    far = count(change >= STEP, measured=change) if min(measured) == 0 else None
    return Response(float(np.median(known)), far)


def _outcome(response: Response | None, trend: Trend) -> Outcome:
    if response is None:
        return None, None
    rises = trend.sign * response.correlation >= CORRELATION
    far = response.far.at_least(SHARE) if response.far else None
    return response.correlation, all_met([rises, far])


def _cells(measured: dict[float, xr.DataArray], response: Response | None) -> Iterator[Cell]:
    yield ", ".join(f"{decay:g}" for decay in measured) or "-"
    yield ", ".join(f"{float(each.median()):.3g}" for each in measured.values()) or "-"
    yield response.correlation if response else None
    far = response.far if response else None
    yield far.share if far else None
    yield str(far) if far else "-"


def _evidence(found: list[Sweep]) -> Iterator[str]:
    for sweep in found:
        yield from sweep.left_out
        if not sweep.enough:
            yield (
                f"{sweep.network}, seed {sweep.seed}: {len(sweep.runs)} of the "
                f"{LEAST_DECAYS} uncollapsed decays that it takes"
            )
        elif 0.0 not in sweep.runs:
            yield f"{sweep.network}, seed {sweep.seed}: without decay 0 no drop from it"


def _strongest(found: list[Sweep]) -> tuple[dict[str, dict[int, Outcome]], str]:
    """How far the median excess of lm lies above the largest of the other networks'."""
    networks = list(dict.fromkeys(sweep.network for sweep in found))
    rest = [network for network in networks if network != "lm"]
    if "lm" not in networks or not rest:
        there = ", ".join(networks)
        return {}, f"strongest in the Transformer: not judged without lm and others; only {there}"
    excess = {(sweep.network, sweep.seed): _median_excess(sweep) for sweep in found}
    outcomes: dict[int, Outcome] = {}
    for seed in [sweep.seed for sweep in found if sweep.network == "lm"]:
        others = [excess.get((network, seed)) for network in rest]
        known, own = [each for each in others if each is not None], excess["lm", seed]
        lead = own - max(known) if own is not None and known else None
        told = lead is not None and len(known) == len(others)
        outcomes[seed] = (lead, lead > 0 if lead is not None and told else None)
    compared = f"{STRONGEST}: its median a / background less the largest of {', '.join(rest)}"
    return {STRONGEST: outcomes}, f"{compared}, each at its largest uncollapsed decay"


def _median_excess(sweep: Sweep) -> float | None:
    """At the largest uncollapsed decay; None if every run collapsed."""
    if not sweep.runs:
        return None
    excess = float(final_relative_alignment(sweep.runs[max(sweep.runs)]).median()) - 1
    return None if np.isnan(excess) else excess
