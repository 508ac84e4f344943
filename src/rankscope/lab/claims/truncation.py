"""Claim Y6 of yunis2024: the top half of each SVD approximates the model (figure 6)."""

import math

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import nearest_decay, nothing_to_judge, with_decays
from rankscope.lab.claims.sweeps import Sweep, rank_correlation, sweeps
from rankscope.lab.claims.tally import all_met
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, base
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

GAP = 0.25
CORRELATION = -0.8
SENTENCE = (
    "the top half of each SVD approximates the model, the bottom half does not, "
    "and the gap closes as decay grows"
)
BOUND = f"<= {GAP:g}, and Spearman <= {CORRELATION:g}"


def top_half_approximates(results: Results) -> Verdict:
    """Y6. The top half of each SVD approximates the model, and the gap closes as decay grows.

    q = (L_top - L_full) / (L_bottom - L_full), its mean over the second half of snapshots.
    Yes: q <= 0.25 at the base decay and Spearman(decay, q) <= -0.8 over uncollapsed runs. A run
    whose denominator is <= 0 at one of these snapshots has no q, and what needs it cannot be told,
    as with fewer than 3 uncollapsed decays, of which two would always be in perfect order. Of T
    snapshots the second half begins with number T // 2, counted from 0.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    evidence: list[str] = []
    for network in _truncated(results):
        evidence += nearest_decay(results, network)
        for sweep in sweeps(results, network):
            gaps = {decay: gap(ds) for decay, ds in sweep.runs.items()}
            correlation = _correlation(sweep, gaps)
            at_base = gaps.get(sweep.base)
            outcomes.setdefault(network, {})[sweep.seed] = _outcome(at_base, correlation)
            listed = ", ".join(f"{d:g}: {_shown(q)}" for d, q in gaps.items())
            rows.append((network, sweep.seed, at_base, correlation, listed))
            evidence += sweep.left_out
    if not outcomes:
        return nothing_to_judge("Y6", SENTENCE, BASE, BOUND)
    columns = ("network", "seed", "q at base decay", "Spearman", "q by decay")
    return judge(
        "Y6",
        SENTENCE,
        outcomes,
        bound=BOUND,
        quantity="q at base decay: loss that the top half costs over that of the bottom half",
        evidence=evidence,
        tables=[Table(columns, tuple(rows), "(L_top - L_full) / (L_bottom - L_full)")],
    )


def gap(ds: xr.Dataset) -> float | None:
    """q, its mean over the second half; None where a denominator is <= 0 or a loss is NaN."""
    late = ds.isel(step=slice(ds.sizes["step"] // 2, None))
    full, top, bottom = (
        late[name].to_numpy().astype(np.float64)
        for name in ("training_loss", "top_loss", "bottom_loss")
    )
    cost = bottom - full
    if not (cost > 0).all():
        return None
    mean = float(np.mean((top - full) / cost)) if np.isfinite(top).all() else math.nan
    return None if math.isnan(mean) else mean


def _truncated(results: Results) -> list[str]:
    """The networks whose truncated losses were measured."""
    return [
        network
        for network in with_decays(results)
        if all("top_loss" in ds for ds in base(results, network).values())
    ]


def _correlation(sweep: Sweep, gaps: dict[float, float | None]) -> float | None:
    known = [q for q in gaps.values() if q is not None]
    if not sweep.enough or len(known) < len(gaps):
        return None
    return float(rank_correlation(np.array([*gaps]), np.array(known)))


def _outcome(at_base: float | None, correlation: float | None) -> Outcome:
    small = None if at_base is None else at_base <= GAP
    closes = None if correlation is None else correlation <= CORRELATION
    return at_base, all_met([small, closes])


def _shown(q: float | None) -> str:
    return "denominator <= 0" if q is None else f"{q:.3g}"
