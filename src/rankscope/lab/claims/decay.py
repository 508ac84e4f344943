"""Claims Y4, Y5 and Y7 of yunis2024: what weight decay does (figures 4 to 6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.lab.claims.alignment import relative_alignment
from rankscope.lab.claims.base_runs import nothing_to_judge, with_decays
from rankscope.lab.claims.ranks import final_ranks
from rankscope.lab.claims.sweeps import LEAST_DECAYS, Sweep, rank_correlation, sweeps
from rankscope.lab.claims.tally import Tally, all_met, tally
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, collapsed, decays
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

CORRELATION = 0.8
STEP = 0.05
SHARE = 0.8
STRONGEST = "strongest in lm"

TRAINS = 0.5
COLLAPSES = 0.1  # the decay at which the VGG does
TRAINS_SENTENCE = "high decay still trains, but for the VGG, which collapses at 0.1"
TRAINS_BOUND = f"<= {TRAINS:g}; vgg: collapsed"


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
        return f"{relation}{CORRELATION:g}, and by >= {STEP:g} in >= {SHARE:g}"


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
    NER is always 1, are not counted.
    """
    trend = Trend("Y4", "more weight decay, lower rank", "final NER", final_ranks, -1)
    return _judge_trend(trend, results)


def decay_strengthens_alignment(results: Results) -> Verdict:
    """Y5. More weight decay, stronger alignment; strongest in the Transformer.

    Yes: the same as Y4 for a / background of pairs, rising: the median Spearman >= 0.8, and a rise
    by >= 0.05 from decay 0 to the largest uncollapsed one in >= 80% of pairs. And, as a row of its
    own where lm and another network are there: at its largest uncollapsed decay the median excess
    of lm, median over pairs of a / background - 1, is the largest, in every seed.
    """
    sentence = "more weight decay, stronger alignment; strongest in the Transformer"
    trend = Trend("Y5", sentence, "final a / background", final_alignment, 1)
    return _judge_trend(trend, results, besides=_strongest)


def final_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(pair): a / background at the end."""
    return relative_alignment(ds.isel(step=[-1])).isel(step=0, drop=True)


Besides = Callable[[list[Sweep]], dict[str, dict[int, Outcome]]]


def _judge_trend(trend: Trend, results: Results, *, besides: Besides | None = None) -> Verdict:
    found = [sweep for network in with_decays(results) for sweep in sweeps(results, network)]
    if not found:
        return nothing_to_judge(trend.claim, trend.sentence, BASE, trend.bound)
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    for sweep in found:
        measured = {decay: trend.measure(ds) for decay, ds in sweep.runs.items()}
        response = respond(measured, trend.sign)
        outcomes.setdefault(sweep.network, {})[sweep.seed] = _outcome(response, trend)
        rows.append((sweep.network, sweep.seed, *_cells(measured, response)))
    columns = ("network", "seed", "decays", f"median {trend.name}", "Spearman", "share", "not far")
    return judge(
        trend.claim,
        trend.sentence,
        outcomes | (besides(found) if besides else {}),
        bound=trend.bound,
        quantity=f"median Spearman(decay, {trend.name})",
        evidence=[*_evidence(found)],
        tables=[Table(columns, tuple(rows), f"{trend.name} by decay, uncollapsed runs")],
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
    far = tally(change >= STEP, measured=change) if min(measured) == 0 else None
    return Response(float(np.median(known)), far)


def _outcome(response: Response | None, trend: Trend) -> Outcome:
    if response is None:
        return None, None
    rises = trend.sign * response.correlation >= CORRELATION
    far = response.far.at_least(SHARE) if response.far else None
    return response.correlation, all_met([rises, far])


def _cells(measured: dict[float, xr.DataArray], response: Response | None) -> Iterator[Cell]:
    yield ", ".join(f"{decay:g}" for decay in measured)
    yield ", ".join(f"{float(each.median()):.3g}" for each in measured.values())
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


def _strongest(found: list[Sweep]) -> dict[str, dict[int, Outcome]]:
    """How far the median excess of lm lies above the largest of the other networks'."""
    excess = {(sweep.network, sweep.seed): _median_excess(sweep) for sweep in found}
    networks = {sweep.network for sweep in found}
    if "lm" not in networks or len(networks) < 2:
        return {}
    outcomes: dict[int, Outcome] = {}
    for seed in [sweep.seed for sweep in found if sweep.network == "lm"]:
        others = [excess.get((network, seed)) for network in networks - {"lm"}]
        known, own = [each for each in others if each is not None], excess["lm", seed]
        lead = own - max(known) if own is not None and known else None
        told = lead is not None and len(known) == len(others)
        outcomes[seed] = (lead, lead > 0 if lead is not None and told else None)
    return {STRONGEST: outcomes}


def _median_excess(sweep: Sweep) -> float | None:
    """At the largest uncollapsed decay; None if every run collapsed."""
    if not sweep.runs:
        return None
    excess = float(final_alignment(sweep.runs[max(sweep.runs)]).median()) - 1
    return None if np.isnan(excess) else excess


def high_decay_trains(results: Results) -> Verdict:
    """Y7. High decay still trains, but for the VGG, which collapses at 0.1.

    Yes: the final training loss at the largest decay that was run is <= half of the initial one,
    for all but the VGG; the VGG's run at 0.1 collapsed. A loss that is not finite is not met. A
    VGG that was not run at 0.1 is not judged.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    for network in with_decays(results):
        found = decays(results, network)
        decay = COLLAPSES if network == "vgg" else max(found)
        for seed, ds in found.get(decay, {}).items():
            first, last = float(ds["training_loss"][0]), float(ds["training_loss"][-1])
            why = collapsed(ds)
            met = bool(why) if network == "vgg" else last <= TRAINS * first
            outcomes.setdefault(network, {})[seed] = (last / first, met)
            rows.append((network, seed, f"{decay:g}", first, last, why or "-"))
    if not outcomes:
        return nothing_to_judge("Y7", TRAINS_SENTENCE, BASE, TRAINS_BOUND)
    columns = ("network", "seed", "decay", "initial loss", "final loss", "collapsed")
    return judge(
        "Y7",
        TRAINS_SENTENCE,
        outcomes,
        bound=TRAINS_BOUND,
        quantity="final over initial training loss at the largest decay",
        tables=[Table(columns, tuple(rows), "training loss at the largest decay")],
    )
