"""Flows from several alphas, stage by stage beside Algorithm 1 (boix2023, Theorem 4.5)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import xarray as xr

from rankscope.figures.staircase import short_names
from rankscope.lab.experiment import Results
from rankscope.theory.algorithm import MANY

LARGEST_ALPHA = -8.0  # log10: above it no stage is called resolved


def flows_of(results: Results, network: str, seed: int) -> dict[float, xr.Dataset]:
    """The flows of one network and seed by log10 of alpha, the largest alpha first."""
    names = [name for name in results if name.startswith(f"{network}/alpha-")]
    flows = [results[name][seed] for name in names]
    flows.sort(key=lambda ds: -ds.attrs["log10_alpha"])
    return {float(ds.attrs["log10_alpha"]): ds for ds in flows}


@dataclass(frozen=True)
class StageInFlow:
    """A stage of Algorithm 1 as the flow at one alpha shows it.

    time: when the flow's coordinate became active, NaN if it did not. activations: how many did so
    in half the stage before and half of its own, itself among them. clear: resolved, and so is
    every stage before it; others delay all that follow.
    """

    alpha: float
    stage: int
    winner: str
    predicted: float
    time: float
    same_sign: bool
    activations: int
    resolved: bool
    clear: bool = False

    @property
    def error(self) -> float:
        return (self.time - self.predicted) / self.predicted

    @property
    def constant(self) -> float:
        """log(1/alpha) (t_k - T_k)"""
        return -self.alpha * math.log(10) * (self.time - self.predicted)


def stages_in_flows(algorithm: xr.Dataset, flows: Mapping[float, xr.Dataset]) -> list[StageInFlow]:
    """Every stage at every alpha (by its log10); resolved only from 1e-8 down.

    The time is that of the winner's first entry, or of its second if it won before and had left.
    """
    algorithm = algorithm.drop_dims("time", errors="ignore").load()
    found = []
    for alpha, flow in flows.items():
        end = float(flow["time"][-1])
        crossings = flow.drop_dims("time").load()  # z of all times would take long to read
        entered = crossings.isel(crossing=crossings["crossing_entered"].to_numpy() == 1)
        clear = True
        for k in range(1, algorithm.sizes["stage"]):
            stage = _stage_in_flow(algorithm, k, entered, alpha, end=end)
            clear = clear and stage.resolved
            found.append(replace(stage, clear=clear))
    return found


def _stage_in_flow(
    algorithm: xr.Dataset, k: int, entered: xr.Dataset, alpha: float, *, end: float
) -> StageInFlow:
    winners = algorithm["stage_winner"].to_numpy()
    winner, earlier = int(winners[k]), int((winners[:k] == winners[k]).sum())
    own = entered.isel(crossing=entered["crossing_coordinate"].to_numpy() == winner)
    stage = algorithm.isel(stage=k)
    length = -alpha * math.log(10)
    transition = float(stage["stage_transition"]) / length
    predicted = float(stage["stage_time"])
    lasts = float(stage["stage_until"]) - predicted
    before = float(algorithm["stage_time"][k - 1])
    time, same_sign, activations = math.nan, False, 0
    if own.sizes["crossing"] > earlier:
        time = float(own["crossing_time"][earlier])
        same_sign = int(own["crossing_sign"][earlier]) == int(stage["stage_sign"])
        later = entered["crossing_time"].to_numpy() - time
        near = (later > -(predicted - before) / 2) & (later <= lasts / 2)
        # The winner before may be late, which is that stage's fault and not this one's.
        others = entered["crossing_coordinate"].to_numpy() != winners[k - 1]
        activations = int((near & (others | (later >= 0))).sum())
    # The flow has to go on long enough to show the stage, too.
    gap = min(lasts, float(stage["stage_margin"]), end - predicted)
    return StageInFlow(
        alpha=alpha,
        stage=k,
        winner=short_names(algorithm)[winner],
        predicted=predicted,
        time=time,
        same_sign=same_sign,
        activations=activations,
        # written so that a stage that did not come to rest (NaN) is not resolved
        resolved=alpha <= LARGEST_ALPHA and gap >= MANY * transition,
    )


def error_dataset(stages: list[StageInFlow]) -> xr.Dataset:
    """activation_error and resolved(alpha, stage), as `figures.activation_errors` draws them."""
    alphas = sorted({each.alpha for each in stages}, reverse=True)
    numbers = sorted({each.stage for each in stages})
    by_place = {(each.alpha, each.stage): each for each in stages}
    grid = [[by_place[alpha, k] for k in numbers] for alpha in alphas]
    return xr.Dataset(
        {
            "activation_error": (
                ("alpha", "stage"),
                [[abs(each.error) for each in row] for row in grid],
            ),
            "resolved": (("alpha", "stage"), [[each.resolved for each in row] for row in grid]),
        },
        coords={"log10_alpha": ("alpha", alphas), "stage": numbers},
    )
