"""Claim Y6 of yunis2024: the top half of each SVD approximates the model (figure 6)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import all_met
from rankscope.lab.judging.verdict import Cell, finite
from rankscope.lab.papers.yunis2024.runs import (
    BASE,
    LEAST_DECAYS,
    Sweep,
    decay_of,
    decay_sweeps,
    in_second_half,
    stand_in_remark,
    sweeps,
    with_full_loss,
)

GAP = 0.25
LEFT = 0.5  # of the gap at decay 0
CLOSED = 0.01
CORRELATION = -0.8
LOSSES = ("full_loss", "top_loss", "bottom_loss")


@dataclass(frozen=True)
class Gap:
    """Mean of q over the second half of snapshots, or the reason why there is none."""

    q: float | None
    reason: str = ""


def measure(runs: Runs) -> Iterator[Measured]:
    """Read G, the mean over the second half of L_top - L_full, over what training gains at decay 0.

    The second half are the snapshots at half of the last step or later. The gain is L_const -
    L_end: the loss of a constant predictor less the last training loss. Two parts are judged.

    1. G <= 0.25 at the base decay: the top half stands for the network.
    2. G at the largest uncollapsed decay is at most half of that at decay 0, or at most 0.01: the
       gap closes.

    A part cannot tell without its runs or without decay 0, or if a loss is not finite.
    BatchNorm statistics are measured anew for the full network and the top half.
    """
    for sweep in sweeps(runs):
        gaps = relative_gaps(sweep)
        row = {f"G at {decay:g}": gap for decay, gap in gaps.items()}
        without = tuple(
            f"{sweep.place}, decay {decay:g}: no G, since a loss is not finite"
            for decay, gap in gaps.items()
            if gap is None
        )
        base = gaps.get(BASE[sweep.base.network])
        stands = None if base is None else base <= GAP
        remarks = (*sweep.left_out, *without)
        measured = Measured(base, stands, (row,), remarks=remarks, part="top half")
        yield measured.at(sweep.base, sweep.seed)
        largest, start = max(gaps, default=0.0), gaps.get(0.0)
        end = gaps[largest] if largest else None
        closes = None if end is None or start is None else end <= max(CLOSED, LEFT * start)
        quantity = "G at the largest uncollapsed decay"
        yield Measured(end, closes, part="gap closes", quantity=quantity).at(sweep.base, sweep.seed)


def relative_gaps(sweep: Sweep) -> dict[float, float | None]:
    """Return G by decay, None where a loss is not finite; empty without decay 0."""
    if 0.0 not in sweep.runs:
        return {}
    without_decay = sweep.runs[0.0]
    gain = without_decay.attrs["constant_loss"] - float(without_decay["training_loss"][-1])
    return {decay: finite(mean_gap(ds) / gain) for decay, ds in sweep.runs.items()}


def mean_gap(ds: xr.Dataset) -> float:
    """Mean of L_top - L_full over the second half of steps."""
    late = with_full_loss(ds).isel(step=in_second_half(ds))
    top, full = (late[name].to_numpy().astype(np.float64) for name in ("top_loss", "full_loss"))
    with np.errstate(invalid="ignore"):  # both may be infinite
        return float(np.mean(top - full))


def measure_first(runs: Runs) -> Iterator[Measured]:
    """Read q = (L_top - L_full) / (L_bottom - L_full), averaged over the second half of snapshots.

    A seed meets the bound if q <= 0.25 at the base decay and Spearman(decay, q) <= -0.8 over its
    uncollapsed runs. Of T snapshots the second half begins with number T // 2, counted from 0. A
    run has no q if a loss is not finite or the denominator is <= 0 at one of these snapshots; its
    seed cannot tell. Fewer than 3 uncollapsed decays have no Spearman. BatchNorm statistics are
    measured anew for all three networks.
    """
    for sweep in sweeps(runs):
        gaps = {decay: gap(ds) for decay, ds in sweep.runs.items()}
        known = [entry.q for entry in gaps.values() if entry.q is not None]
        correlation = None
        if LEAST_DECAYS <= len(gaps) == len(known):
            correlation = float(rank_correlation(np.array([*gaps]), np.array(known)))
        base = decay_of(sweep.base)
        at_base = gaps[base].q if base in gaps else None
        small = None if at_base is None else at_base <= GAP
        closes = None if correlation is None else correlation <= CORRELATION
        by_decay: dict[str, Cell] = {f"q at {decay:g}": entry.q for decay, entry in gaps.items()}
        network, seed = sweep.base.network, sweep.seed
        without_q = tuple(
            f"{network}, decay {decay:g}, seed {seed}: no q ({entry.reason}); the seed cannot tell"
            for decay, entry in gaps.items()
            if entry.q is None
        )
        yield Measured(
            at_base,
            all_met([small, closes]) if len(known) == len(gaps) else None,
            ({"q at base decay": at_base, "Spearman": correlation, **by_decay},),
            remarks=(*stand_in_remark(sweep.base), *sweep.left_out, *without_q),
        ).at(sweep.base, seed)


def gap(ds: xr.Dataset) -> Gap:
    """Return the mean of q over the second half of a run's snapshots."""
    late = second_half(ds)
    for name in LOSSES:
        if not np.isfinite(late[name]).all():
            return Gap(None, f"{name.replace('_', ' ')} is not finite")
    if not (late["bottom_loss"] > late["full_loss"]).all():
        return Gap(None, "denominator <= 0")
    return Gap(float(np.mean(quotient(late).to_numpy())))


def second_half(ds: xr.Dataset) -> xr.Dataset:
    """Select the losses at the snapshots over which q is averaged, in double precision."""
    late = with_full_loss(ds).isel(step=slice(ds.sizes["step"] // 2, None))
    return late[list(LOSSES)].astype(np.float64)


def quotient(losses: xr.Dataset) -> xr.DataArray:
    """(step): q, snapshot by snapshot."""
    full, top, bottom = (losses[name] for name in LOSSES)
    q: xr.DataArray = (top - full) / (bottom - full)
    return q


Y6 = Rule(
    claim="Y6",
    sentence="the top half of each SVD approximates the network, better with more decay",
    quantity="G at base decay: loss that the top half costs, over what training gains at decay 0",
    bound=f"<= {GAP:g}; at the largest decay <= half of that at decay 0, or <= {CLOSED:g}",
    measure=measure,
    needs=decay_sweeps,
    table="mean of (L_top - L_full) over the second half of steps, over (L_const - L_end) at decay "
    "0",
    changed=True,
    reason="The first rule divides by what the bottom half costs, which comes near zero. It folds "
    "two statements into one mark.",
)
Y6_FIRST = Rule(
    claim="Y6-first",
    headline="Y6",
    sentence=Y6.sentence,
    quantity="q at base decay: loss that the top half costs over that of the bottom half",
    bound=f"<= {GAP:g}, and Spearman(decay, q) <= {CORRELATION:g}",
    measure=measure_first,
    needs=decay_sweeps,
    table="(L_top - L_full) / (L_bottom - L_full)",
)
