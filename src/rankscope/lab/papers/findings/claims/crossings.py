"""Claim N3: networks grok at a rank. The step of the jump varies; the rank there does not."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.findings.runs import SeedRun, seed_runs
from rankscope.lab.papers.yunis2024.claims.grokking import at_crossing, crossing, mean_rank
from rankscope.lab.training.outcome import collapsed

RUNS, LEAST = 27, 20  # at least 20 of 27 runs cross
RANGE = 0.5  # in log10 step
VARIATION = 0.05


class Crossing(NamedTuple):
    """A run at the moment at which half of the held-out sums are right.

    step: log10 of the step. rank: mean NER. norm: total norm of the weight matrices. All are NaN
    if the run never crosses; then `reason` says why.
    """

    run: SeedRun
    step: float
    rank: float
    norm: float
    reason: str = ""


def crossing_of(run: SeedRun) -> Crossing:
    """Return the crossing of one run."""
    step = crossing(run.ds)
    reason = collapsed(run.ds)
    if not reason and math.isnan(step):
        best = float(run.ds["validation_accuracy"].max())
        reason = f"best test accuracy {best:.0%}"
        if float(run.ds["validation_accuracy"][run.ds["step"].to_numpy() > 0][0]) >= 0.5:
            reason = "above 50% from the first snapshot on"
    if reason:
        return Crossing(run, math.nan, math.nan, math.nan, reason)
    rank, norm = (at_crossing(run.ds, course(run.ds)) for course in (mean_rank, total_norm))
    return Crossing(run, step, rank, norm)


def total_norm(ds: xr.Dataset) -> xr.DataArray:
    """(step): Frobenius norm of all whole matrices together, the root of the sum of squares."""
    norms: xr.DataArray = ds[["singular_values"]].rankscope.whole().rankscope.frobenius_norm()
    return (norms**2).sum("matrix") ** 0.5


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation: sample standard deviation over mean; NaN below two values."""
    if len(values) < 2:
        return math.nan
    return float(np.std(values, ddof=1) / np.mean(values))


def measure(runs: Runs) -> Iterator[Measured]:
    """Yield the same value for every seed: the variation of mean NER over all runs that cross.

    The rule is one statement over all runs. It is met if 20 of 27 runs cross 50% test accuracy, the
    log10 of that step ranges over more than 0.5, and mean NER there varies by less than 5%, which
    is less than the total weight norm does. With fewer than 27 runs it cannot tell. A run that
    collapsed, or is above 50% from the first snapshot on, does not count as crossing.
    """
    crossings = [crossing_of(run) for run in seed_runs(runs)]
    crossed = [moment for moment in crossings if not moment.reason]
    steps, ranks, norms = (
        [getattr(moment, name) for moment in crossed] for name in ("step", "rank", "norm")
    )
    of_rank, of_norm = variation(ranks), variation(norms)
    spread = max(steps) - min(steps) if steps else math.nan
    enough = len(crossed) * RUNS >= LEAST * len(crossings)
    met = enough and spread > RANGE and of_rank < VARIATION and of_rank < of_norm
    row: dict[str, Cell] = {
        "runs": len(crossings),
        "runs that cross": len(crossed),
        "range of log10 step": spread,
        "variation of NER": of_rank,
        "variation of norm": of_norm,
        "mean NER": float(np.mean(ranks)) if ranks else math.nan,
    }
    remarks = tuple(f"{m.run.title} does not cross: {m.reason}" for m in crossings if m.reason)
    has_enough_runs = len(crossings) >= RUNS
    if not has_enough_runs:
        remarks = (f"has {len(crossings)} of the {RUNS} runs that it takes", *remarks)
    for place, seed in enumerate(runs.seeds):
        rows = (row,) if place == 0 else ()
        outcome = Measured(
            of_rank if has_enough_runs else None,
            met if has_enough_runs else None,
            rows,
            remarks=remarks,
        )
        yield outcome.at(next(iter(runs)), seed)


def crossing_tables(runs: Runs, archive: Path) -> list[Table]:
    """Return the table of every crossing, by decay and share; without rows if there is no run."""
    return [crossing_table(runs)]


def crossing_table(runs: Runs) -> Table:
    """Return step, NER and norm at the crossing of every run."""
    rows = []
    for moment in map(crossing_of, seed_runs(runs)):
        variant = moment.run.key.variant
        values: tuple[Cell, ...] = (
            (None, None, None)
            if moment.reason
            else (round(10**moment.step), moment.rank, moment.norm)
        )
        rows.append((variant["decay"], variant["share"], moment.run.seed, *values, moment.reason))
    columns = ("decay", "share", "seed", "step", "mean NER", "total norm", "note")
    return Table(columns, tuple(rows), "where half of the held-out sums are right")


N3 = Rule(
    claim="N3",
    sentence="networks grok at a rank: the step of the jump varies, the rank there does not",
    quantity=(
        f"variation of mean NER at 50% test accuracy, over {LEAST} of {RUNS} runs or more whose "
        f"log10 step ranges over > {RANGE:g}; it is below that of the total norm"
    ),
    bound=f"< {VARIATION:g}",
    measure=measure,
    needs=runs_of("grok", experiment="findings/grokking-rank"),
    table="the crossings of all runs and seeds together",
    changed=True,
    ours=True,
)
