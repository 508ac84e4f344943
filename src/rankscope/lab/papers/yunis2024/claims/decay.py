"""Claim Y4 of yunis2024, and the first rule of Y5: trends with weight decay (figures 4, 5)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import Tally, all_met, count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.claims.ranks import final_ranks
from rankscope.lab.papers.yunis2024.claims.transformer_lead import transformer_leads
from rankscope.lab.papers.yunis2024.runs import (
    LEAST_DECAYS,
    Sweep,
    decay_sweeps,
    relative_alignment,
    sweeps,
)

CORRELATION = 0.8
STEP = 0.05
SHARE = 0.8
CHANGE = f"changed by >= {STEP:g} from decay 0 in >= {SHARE:.0%} of them"


class Response(NamedTuple):
    """Median rank correlation with decay, and a tally of changes from decay 0.

    changed: None if decay 0 is missing.
    """

    correlation: float
    changed: Tally | None


def measure_ranks(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if its uncollapsed runs meet two parts.

    1. The median over matrices of Spearman(decay, final NER) is <= -0.8.
    2. NER drops from decay 0 to the largest decay by 0.05 or more in 80% of matrices.

    Every declared decay counts, also that of figures 1-3. A seed cannot tell with fewer than 3
    uncollapsed decays or without decay 0. A matrix whose NER stays the same has correlation 0.
    Matrices with a single value, whose NER is always 1, are not counted. A matrix that ends at zero
    in some run cannot tell.
    """
    for sweep in sweeps(runs):
        ranks = {decay: final_ranks(ds) for decay, ds in sweep.runs.items()}
        yield _measure_trend(sweep, ranks, "NER", sign=-1)


def measure_alignment_first(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if a / background of pairs rises with decay, by the parts of Y4.

    1. The median over pairs of Spearman(decay, final a / background) is >= 0.8.
    2. It rises from decay 0 to the largest decay by 0.05 or more in 80% of pairs.

    "Most in the Transformer" is judged by itself, where lm and another network are there: at its
    largest uncollapsed decay, lm has the largest median of a / background - 1. The value is the
    lead of lm over the next network, which is no correlation.
    """
    all_sweeps = list(sweeps(runs))
    for sweep in all_sweeps:
        aligned = {decay: final_relative_alignment(ds) for decay, ds in sweep.runs.items()}
        yield _measure_trend(sweep, aligned, "a / background", sign=1)
    yield from _lead_of_transformer(all_sweeps)


def final_relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(pair): a / background at the end."""
    return relative_alignment(ds.isel(step=[-1])).isel(step=0, drop=True)


def respond(measured: dict[float, xr.DataArray], sign: int) -> Response | None:
    """Return what decay does to values by ascending decay; None with fewer than 3 decays."""
    if len(measured) < LEAST_DECAYS:
        return None
    values = np.stack([entry.to_numpy() for entry in measured.values()])  # (decay, matrix)
    correlations = rank_correlation(np.array([*measured]), values)
    known = correlations[~np.isnan(correlations)]
    if not len(known):
        return None
    change = sign * (measured[max(measured)] - measured[min(measured)])
    changed = count(change >= STEP, measured=change) if min(measured) == 0 else None
    return Response(float(np.median(known)), changed)


def _measure_trend(
    sweep: Sweep, values: dict[float, xr.DataArray], name: str, *, sign: int
) -> Measured:
    response = respond(values, sign)
    changed = response.changed if response else None
    correlation = response.correlation if response else None
    follows = None if correlation is None else sign * correlation >= CORRELATION
    row: dict[str, Cell] = {
        "Spearman": correlation,
        "changed": changed.share if changed else None,
        "exceptions": str(changed) if changed else "-",
        **{f"{name} at {decay:g}": float(final.median()) for decay, final in values.items()},
    }
    return Measured(
        correlation,
        all_met([follows, changed.at_least(SHARE) if changed else None]),
        (row,),
        {"changes": changed} if changed else {},
        (*sweep.left_out, *_lacks(sweep)),
    ).at(sweep.base, sweep.seed)


def _lacks(sweep: Sweep) -> Iterator[str]:
    """Yield a remark on what a seed would need to tell."""
    if len(sweep.runs) < LEAST_DECAYS:
        yield f"{sweep.place}: {len(sweep.runs)} uncollapsed decays, {LEAST_DECAYS} are needed"
    elif 0.0 not in sweep.runs:
        yield f"{sweep.place}: decay 0 collapsed or is not declared, so no change from it is known"


def _lead_of_transformer(all_sweeps: list[Sweep]) -> Iterator[Measured]:
    """Measure how far the median excess of lm lies above the largest of the other networks."""
    for sweep, lead, others, complete in transformer_leads(all_sweeps, _median_excess):
        yield Measured(
            lead,
            lead > 0 if lead is not None and complete else None,
            part="most of all networks",
            quantity=f"median a / background less the largest of {others}, each at its "
            "largest uncollapsed decay",
        ).at(sweep.base, sweep.seed)


def _median_excess(sweep: Sweep) -> float | None:
    """Median over pairs of a / background - 1 at the largest uncollapsed decay; None without."""
    if not sweep.runs:
        return None
    excess = float(final_relative_alignment(sweep.runs[max(sweep.runs)]).median()) - 1
    return None if np.isnan(excess) else excess


Y4 = Rule(
    claim="Y4",
    sentence="more weight decay, lower rank",
    quantity="median Spearman(decay, final NER)",
    bound=f"<= -{CORRELATION:g}, and {CHANGE}",
    measure=measure_ranks,
    needs=decay_sweeps,
    table="median of final NER by decay, uncollapsed runs",
)
Y5_FIRST = Rule(
    claim="Y5-first",
    headline="Y5",
    sentence="more weight decay, stronger alignment, most in the Transformer",
    quantity="median Spearman(decay, final a / background)",
    bound=f">= {CORRELATION:g}, and {CHANGE}",
    measure=measure_alignment_first,
    needs=decay_sweeps,
    table="median of final a / background by decay, uncollapsed runs",
)
