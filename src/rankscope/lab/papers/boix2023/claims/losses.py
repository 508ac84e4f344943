"""Claim B1: the loss falls in stages, sharper as alpha falls."""

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.stages import flows_and_algorithm, seeds_of_networks

LARGEST, SMALLEST = -4.0, -32.0  # log10 of the alphas that are compared
NEAR = 0.03  # of the initial loss, at the smallest of them


def measure_distance(runs: Runs) -> Iterator[Measured]:
    """Ask that the loss approaches Algorithm 1's staircase.

    D is the mean over rescaled time of |loss - staircase loss| / initial loss, up to the start of
    the last stage. From 1e-4 to 1e-32, D has to fall at each smaller alpha, and to end at 3% or
    less. A seed cannot tell if Algorithm 1 ties, or if 1e-32 or a larger alpha was not run.
    """
    for entry in seeds_of_networks(runs):
        distances = {
            log10_alpha: distance_from_staircase(flow, entry.algorithm)
            for log10_alpha, flow in entry.flows.items()
        }
        row = {f"1e{log10_alpha:g}": distance for log10_alpha, distance in distances.items()}
        last, met = distances.get(SMALLEST), None
        if last is not None and len(distances) > 1 and not math.isnan(last):
            met = last <= NEAR and bool((np.diff([*distances.values()]) < 0).all())
        yield entry.placed_unless_tied(Measured(last, met, rows=(row,)))


def distance_from_staircase(flow: xr.Dataset, algorithm: xr.Dataset) -> float:
    """Return the mean of |loss - staircase loss| / initial loss until the last stage begins.

    The last stage is the last of Algorithm 1 that begins within the flow. The loss is linear
    between recorded times, and the integral is exact. NaN if no stage begins.
    """
    time, loss = flow["time"].to_numpy(), flow["loss"].to_numpy()
    begins, heights = (algorithm[f"stage_{name}"].to_numpy() for name in ("time", "loss"))
    end = begins[begins <= time[-1]].max()
    if end == 0:
        return math.nan
    knots = np.unique(np.concatenate([time, begins]))
    knots = knots[knots <= end]
    height = heights[np.searchsorted(begins, knots[:-1], side="right") - 1]
    at_knots = np.interp(knots, time, loss)
    means = mean_sizes(at_knots[:-1] - height, at_knots[1:] - height)
    return float((means * np.diff(knots)).sum() / end / loss[0])


def mean_sizes(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the mean of |x| where x goes linearly from `first` to `last`."""
    total = abs(first) + abs(last)
    crosses = first * last < 0
    means: np.ndarray = np.where(
        crosses, (first**2 + last**2) / np.where(crosses, 2 * total, 1), total / 2
    )
    return means


B1 = Rule(
    claim="B1",
    sentence="the loss falls in stages, sharper as alpha falls",
    quantity="mean distance of the loss from Algorithm 1's staircase at 1e-32, of the initial loss",
    bound=f"<= {NEAR:g}, falling at each alpha from 1e-4 on",
    measure=measure_distance,
    needs=flows_and_algorithm(LARGEST, SMALLEST),
    table="mean distance of the loss from Algorithm 1's staircase, of the initial loss, by alpha",
    changed=True,
    reason=(
        "The first rule compares shares at 1e-1 and 1e-2, where there are no stages yet, and asks "
        "a share that is 1 already to rise."
    ),
)


def measure_sharpness(runs: Runs) -> Iterator[Measured]:
    """Ask that the share of the loss's fall in the steepest tenth of rescaled time rises.

    It has to rise from each alpha to the next smaller one.
    """
    for entry in seeds_of_networks(runs):
        shares = np.array([steepest_share(flow) for flow in entry.flows.values()])
        rises = np.diff(shares)
        row = {
            f"1e{log10_alpha:g}": round(share, 4)
            for log10_alpha, share in zip(entry.flows, shares.tolist(), strict=True)
        }
        yield entry.placed(Measured(rises.min(initial=1.0), (rises > 0).all(), rows=(row,)))


def steepest_share(ds: xr.Dataset, *, cells: int = 2000) -> float:
    """Return the share of the loss's whole decrease that falls in the steepest tenth of time."""
    time, loss = ds["time"].to_numpy(), ds["loss"].to_numpy()
    falls = -np.diff(np.interp(np.linspace(time[0], time[-1], cells + 1), time, loss))
    falls = np.sort(falls)[::-1]
    whole = falls.sum()
    return float(falls[: cells // 10].sum() / whole) if whole > 0 else math.nan


B1_FIRST = Rule(
    claim="B1-first",
    headline="B1",
    sentence=B1.sentence,
    quantity="smallest rise, alpha by alpha, of the loss's share in the steepest tenth of time",
    bound="> 0",
    measure=measure_sharpness,
    needs=flows_and_algorithm(),
    table="share of the loss's decrease in the steepest tenth of rescaled time, by alpha",
)
