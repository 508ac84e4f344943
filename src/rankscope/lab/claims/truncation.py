"""Claim Y6 of yunis2024: the top half of each SVD approximates the model (figure 6)."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.figures.truncated import with_full_loss
from rankscope.lab.claims.base_runs import nearest_decay, nothing_to_judge, with_decays
from rankscope.lab.claims.sweeps import Sweep, by_seed, rank_correlation
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
LOSSES = ("full_loss", "top_loss", "bottom_loss")
BOUND = f"<= {GAP:g}, and Spearman(decay, q) <= {CORRELATION:g} (in the evidence)"


def top_half_approximates(results: Results) -> Verdict:
    """Y6. The top half of each SVD approximates the model, and the gap closes as decay grows.

    q = (L_top - L_full) / (L_bottom - L_full), its mean over the second half of snapshots.
    Yes: q <= 0.25 at the base decay and Spearman(decay, q) <= -0.8 over uncollapsed runs. A run
    whose denominator is <= 0, or one of whose losses is not finite, at one of these snapshots has
    no q, and a seed with such a run cannot tell. Nor is there a Spearman of fewer than 3
    uncollapsed decays, of which two would always be in perfect order. Of T snapshots the second
    half begins with number T // 2, counted from 0. BatchNorm statistics are measured anew for all
    three networks.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    evidence: list[str] = []
    for network in _truncated(results):
        evidence += nearest_decay(results, network)
        for sweep in by_seed(results, network):
            gaps = {decay: gap(ds) for decay, ds in sweep.runs.items()}
            correlation = _correlation(sweep, gaps)
            at_base = gaps[sweep.base].q if sweep.base in gaps else None
            known = all(each.q is not None for each in gaps.values())
            outcome = at_base, _met(at_base, correlation) if known else None
            outcomes.setdefault(network, {})[sweep.seed] = outcome
            listed = ", ".join(f"{decay:g}: {each}" for decay, each in gaps.items()) or "-"
            rows.append((network, sweep.seed, at_base, correlation, listed))
            evidence += sweep.left_out
            evidence += [
                f"{network} at decay {decay:g}, seed {sweep.seed}: {each}, so the seed cannot tell"
                for decay, each in gaps.items()
                if each.q is None
            ]
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


@dataclass(frozen=True)
class Gap:
    """q, its mean over the second half, or the reason why there is none."""

    q: float | None
    reason: str = ""

    def __str__(self) -> str:
        return f"no q ({self.reason})" if self.q is None else f"{self.q:.3g}"


def gap(ds: xr.Dataset) -> Gap:
    late = second_half(ds)
    for name in LOSSES:
        if not np.isfinite(late[name]).all():
            return Gap(None, f"{name.replace('_', ' ')} is not finite")
    if not (late["bottom_loss"] > late["full_loss"]).all():
        return Gap(None, "denominator <= 0")
    return Gap(float(np.mean(quotient(late).to_numpy())))


def second_half(ds: xr.Dataset) -> xr.Dataset:
    """The losses at the snapshots that q is a mean over, in double precision."""
    late = with_full_loss(ds).isel(step=slice(ds.sizes["step"] // 2, None))
    return late[list(LOSSES)].astype(np.float64)


def quotient(losses: xr.Dataset) -> xr.DataArray:
    """(step): q, snapshot by snapshot."""
    full, top, bottom = (losses[name] for name in LOSSES)
    q: xr.DataArray = (top - full) / (bottom - full)
    return q


def _truncated(results: Results) -> list[str]:
    """The networks whose truncated losses were measured."""
    return [
        network
        for network in with_decays(results)
        if all("top_loss" in ds for ds in base(results, network).values())
    ]


def _correlation(sweep: Sweep, gaps: dict[float, Gap]) -> float | None:
    known = [each.q for each in gaps.values() if each.q is not None]
    if not sweep.enough or len(known) < len(gaps):
        return None
    return float(rank_correlation(np.array([*gaps]), np.array(known)))


def _met(at_base: float | None, correlation: float | None) -> bool | None:
    small = None if at_base is None else at_base <= GAP
    closes = None if correlation is None else correlation <= CORRELATION
    return all_met([small, closes])
