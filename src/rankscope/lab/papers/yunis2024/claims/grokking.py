"""Claim Y9: rank drops as the test accuracy jumps (modular addition).

yunis2024 has the runs, but its text does not state this.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import collapse_remark, decay_of, with_values
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

WITHIN = 0.2
ACCURACY = 0.5
SPACING = 0.05  # in log10 step


def largest_decay_and_control(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need grok at its largest decay, which is not 0, and at decay 0 if declared."""
    swept = runs_of("grok", parameter="decay")(keys)
    largest = max(map(decay_of, swept), default=0.0)
    return [key for key in swept if decay_of(key) in (0.0, largest)] if largest else []


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if two moments lie within 0.2 in log10 step, at the largest decay.

    One is the steepest drop of NER, averaged over whole matrices; the other the crossing of 50%
    test accuracy. Steepness is per log10 step, read every 0.05 between snapshots. So late
    snapshots, which lie closer, weigh no more. A run that collapsed, never crosses or never drops
    cannot tell. Decay 0 is the control: it stands in the table and does not decide.
    """
    keys = sorted(runs, key=decay_of, reverse=True)  # the largest decay, then the control
    for seed in runs.seeds:
        ds = runs[keys[0]][seed]
        distance = abs(steepest_drop(ds) - crossing(ds))
        met = None if math.isnan(distance) else distance <= WITHIN
        rows = tuple(_row(key, runs[key][seed]) for key in keys)
        measured = Measured(distance, met, rows).at(keys[0], seed)
        if reason := collapsed(ds):
            measured = measured.without_outcome(collapse_remark(keys[0], seed, reason))
        yield measured


def _row(key: RunKey, ds: xr.Dataset) -> Mapping[str, Cell]:
    ranks = mean_rank(ds)
    return {
        "decay": f"{decay_of(key):g}",
        "steepest drop": steepest_drop(ds),
        "crossing": crossing(ds),
        "NER start": float(ranks[0]),
        "NER end": float(ranks[-1]),
        "accuracy": float(ds["validation_accuracy"][-1]),
    }


def steepest_drop(ds: xr.Dataset) -> float:
    """log10 of the step at which mean NER falls most per log10 step; NaN if it never falls."""
    return steepest(mean_rank(ds), SPACING)[0]


def steepest(rank: xr.DataArray, spacing: float) -> tuple[float, float]:
    """log10 step of the steepest drop of (step) on a grid of this spacing, and its size, or NaN."""
    steps, ranks = _after_start(rank)
    if len(steps) < 2:
        return math.nan, math.nan
    grid = np.linspace(steps[0], steps[-1], 1 + math.ceil((steps[-1] - steps[0]) / spacing))
    falls = -np.diff(np.interp(grid, steps, ranks))
    cell = int(falls.argmax())
    if not falls[cell] > 0:
        return math.nan, math.nan
    return float(grid[cell] + grid[cell + 1]) / 2, float(falls[cell])


def crossing(ds: xr.Dataset) -> float:
    """log10 of the step at which test accuracy first reaches 50%; NaN if it never does.

    It is interpolated between the two snapshots around it. NaN too if the first snapshot is above.
    """
    steps, accuracy = _after_start(ds["validation_accuracy"])
    above = np.flatnonzero(accuracy >= ACCURACY)
    if not len(above) or above[0] == 0:
        return math.nan
    around = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(ACCURACY, accuracy[around], steps[around]))


def at_crossing(ds: xr.Dataset, course: xr.DataArray) -> float:
    """Value of (step) at the crossing, interpolated between the two snapshots around it; or NaN.

    It is linear in log10 step, as the crossing is.
    """
    steps, values = _after_start(course)
    return float(np.interp(crossing(ds), steps, values)) if len(steps) else math.nan


def mean_rank(ds: xr.Dataset) -> xr.DataArray:
    """(step): mean NER over whole matrices with more than one value.

    A matrix that is zero at some snapshot is left out, since the mean would jump there.
    """
    ranks: xr.DataArray = with_values(ds, 2).rankscope.normalized_effective_rank()
    return ranks.dropna("matrix").mean("matrix")


def _after_start(course: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """log10 step, and the values there, of the snapshots after the first step."""
    steps = course["step"].to_numpy()
    return np.log10(steps[steps > 0]), course.to_numpy()[steps > 0]


Y9 = Rule(
    claim="Y9",
    sentence="rank drops as a network groks",
    quantity="log10 step between the steepest drop of NER and 50% test accuracy",
    bound=f"<= {WITHIN:g}",
    measure=measure,
    needs=largest_decay_and_control,
    table="log10 step of the steepest drop and of the crossing",
    ours=True,
)
