"""Claim Y9 of yunis2024: rank drops as the test accuracy jumps (modular addition)."""

import math

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import nothing_to_judge
from rankscope.lab.claims.ranks import with_values
from rankscope.lab.experiment import Results
from rankscope.lab.reading import Seeds, collapsed, decays
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

WITHIN = 0.2
ACCURACY = 0.5
SPACING = 0.05  # in log10 step
SENTENCE = "when the network groks, the drop in rank comes with the jump in test accuracy"
BOUND = f"<= {WITHIN:g}"


def rank_drops_as_accuracy_jumps(results: Results) -> Verdict:
    """Y9. When the network groks, the drop in rank comes with the jump in test accuracy.

    Yes: the steepest drop of NER, its mean over whole matrices, and the crossing of 50% test
    accuracy lie within 0.2 in log10 step, at the largest decay that was run. Decay 0 stands beside
    it as control and does not decide. Steepness is that per log10 step, read every 0.05 between
    snapshots, so that those late in training, which lie closer, weigh no more. A run that
    collapsed, never crosses or never drops cannot tell.
    """
    found = decays(results, "grok")
    largest = max(found, default=0.0)
    if largest == 0:
        return nothing_to_judge("Y9", SENTENCE, ("grok with decay",), BOUND)
    outcomes: dict[int, Outcome] = {}
    evidence: list[str] = []
    for seed, ds in found[largest].items():
        apart = abs(steepest_drop(ds) - crossing(ds))
        why = collapsed(ds)
        outcomes[seed] = (None, None) if why or math.isnan(apart) else (apart, apart <= WITHIN)
        evidence += [f"grok at decay {largest:g}, seed {seed} collapsed: {why}"] if why else []
    control = _rows(0.0, found[0.0]) if 0.0 in found else []
    columns = ("decay", "seed", "steepest drop", "crossing", "NER start", "NER end", "accuracy")
    return judge(
        "Y9",
        SENTENCE,
        {"grok": outcomes},
        bound=BOUND,
        quantity="log10 step between the steepest drop of NER and 50% test accuracy",
        evidence=evidence,
        tables=[
            Table(columns, (*_rows(largest, found[largest]), *control), "log10 step of drop, jump")
        ],
    )


def steepest_drop(ds: xr.Dataset) -> float:
    """log10 of the step at which mean NER falls most per log10 step; NaN if it never falls."""
    at, _ = steepest(mean_rank(ds), SPACING)
    return at


def steepest(rank: xr.DataArray, spacing: float) -> tuple[float, float]:
    """log10 step of the steepest drop of (step) on a grid of this spacing, and its size, or NaN."""
    steps, ranks = _after_start(rank)
    if len(steps) < 2:
        return math.nan, math.nan
    grid = np.linspace(steps[0], steps[-1], 1 + math.ceil((steps[-1] - steps[0]) / spacing))
    falls = -np.diff(np.interp(grid, steps, ranks))
    at = int(falls.argmax())
    if not falls[at] > 0:
        return math.nan, math.nan
    return float(grid[at] + grid[at + 1]) / 2, float(falls[at])


def crossing(ds: xr.Dataset) -> float:
    """log10 of the step at which test accuracy first reaches 50%; NaN if it never does.

    Straight between the two snapshots around it. NaN too if the first snapshot is above.
    """
    steps, accuracy = _after_start(ds["validation_accuracy"])
    above = np.flatnonzero(accuracy >= ACCURACY)
    if not len(above) or above[0] == 0:
        return math.nan
    around = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(ACCURACY, accuracy[around], steps[around]))


def mean_rank(ds: xr.Dataset) -> xr.DataArray:
    """(step): NER, its mean over whole matrices with more than one value.

    A matrix that is zero at some snapshot takes no part, since the mean would jump where it goes.
    """
    ranks: xr.DataArray = with_values(ds, 2).rankscope.normalized_effective_rank()
    return ranks.dropna("matrix").mean("matrix")


def _after_start(course: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """log10 step, and the values there, of the snapshots after the first step."""
    steps = course["step"].to_numpy()
    return np.log10(steps[steps > 0]), course.to_numpy()[steps > 0]


def _rows(decay: float, seeds: Seeds) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for seed, ds in seeds.items():
        ranks = mean_rank(ds)
        ends = float(ranks[0]), float(ranks[-1]), float(ds["validation_accuracy"][-1])
        rows.append((f"{decay:g}", seed, steepest_drop(ds), crossing(ds), *ends))
    return rows
