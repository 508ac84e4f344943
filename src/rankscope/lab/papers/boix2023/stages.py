"""Flows from several alphas beside Algorithm 1, stage by stage (boix2023, Theorem 4.5).

Alphas are given as their log10, since 1e-1000 is no float.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.theory.algorithm import MANY

LARGEST_ALPHA = -8.0  # log10: above it no stage is called resolved


def flows_of(runs: Runs, network: str, seed: int) -> dict[float, xr.Dataset]:
    """Return the flows of one network and seed by log10 of alpha, the largest alpha first."""
    by_alpha = runs.of(network).by("log10_alpha")
    return {log10_alpha: by_alpha[log10_alpha][seed] for log10_alpha in reversed(by_alpha)}


def short_names(algorithm: xr.Dataset) -> list[str]:
    """Return labels of the coordinates, without layer and head if there is only one."""
    labels = [str(label) for label in algorithm["coordinate"].to_numpy()]
    heads = set(zip(algorithm["layer"].to_numpy(), algorithm["head"].to_numpy(), strict=True))
    return labels if len(heads) > 1 else [".".join(label.split(".")[-2:]) for label in labels]


@dataclass(frozen=True)
class StageInFlow:
    """A stage of Algorithm 1 as the flow at one alpha shows it.

    predicted: T_k, when Algorithm 1 activates the winner.
    time: t_k, when the flow does; NaN if it never does.
    same_sign: whether the entry that the flow activates has the predicted sign.
    activations: entries that become active from half of the stage before until half of this one,
    the winner among them.
    resolved: the stage lasts long enough at this alpha to be told from its neighbours.
    clear: resolved, and so is every stage before it. One that is not delays all that follow.
    """

    log10_alpha: float
    stage: int
    winner: str
    predicted: float
    time: float
    same_sign: bool
    activations: int
    resolved: bool
    clear: bool

    @property
    def error(self) -> float:
        return (self.time - self.predicted) / self.predicted

    @property
    def constant(self) -> float:
        """log(1/alpha) (t_k - T_k)"""
        return -self.log10_alpha * math.log(10) * (self.time - self.predicted)


def stages_in_flows(algorithm: xr.Dataset, flows: Mapping[float, xr.Dataset]) -> list[StageInFlow]:
    """Return every stage at every alpha; none is resolved above 1e-8.

    The winner's time is that of its first entry, or of its second if it won before and had left.
    """
    names = short_names(algorithm)
    columns = (algorithm[f"stage_{name}"].to_numpy() for name in Predictions._fields)
    predictions = Predictions(*columns)
    stages = []
    for log10_alpha, flow in flows.items():
        entries, flow_end = _entries(flow), float(flow["time"][-1])
        clear = True
        for k in range(1, len(predictions.winner)):
            time, same_sign, activations = _in_flow(predictions, k, entries)
            resolved = _is_resolved(predictions, k, log10_alpha, flow_end)
            clear = clear and resolved
            stages.append(
                StageInFlow(
                    log10_alpha=log10_alpha,
                    stage=k,
                    winner=names[predictions.winner[k]],
                    predicted=float(predictions.time[k]),
                    time=time,
                    same_sign=same_sign,
                    activations=activations,
                    resolved=resolved,
                    clear=clear,
                )
            )
    return stages


class Predictions(NamedTuple):
    """Stages of Algorithm 1 from `time` until `until`, in rescaled time.

    margin: how much later the second would win. transition: plain time a stage takes to rest.
    """

    winner: np.ndarray
    sign: np.ndarray
    time: np.ndarray
    until: np.ndarray
    margin: np.ndarray
    transition: np.ndarray


class Entries(NamedTuple):
    """Moments at which coordinates of a flow become active, in order of time."""

    coordinate: np.ndarray
    time: np.ndarray
    sign: np.ndarray


def _entries(flow: xr.Dataset) -> Entries:
    entered = flow["crossing_entered"].to_numpy() == 1
    return Entries(*(flow[f"crossing_{name}"].to_numpy()[entered] for name in Entries._fields))


def _in_flow(predictions: Predictions, k: int, entries: Entries) -> tuple[float, bool, int]:
    """Return when stage k's winner enters, whether with the predicted sign, and the activations."""
    winner, sign, begins, until, *_ = predictions
    earlier_wins = int((winner[:k] == winner[k]).sum())
    of_winner = np.flatnonzero(entries.coordinate == winner[k])
    if len(of_winner) <= earlier_wins:
        return math.nan, False, 0
    own = of_winner[earlier_wins]
    time = float(entries.time[own])
    delay = entries.time - time
    lasts, previous_lasts = until[k] - begins[k], begins[k] - begins[k - 1]
    in_stage = (delay > -previous_lasts / 2) & (delay <= lasts / 2)
    # The winner of the stage before may be late, which is no fault of this stage.
    late_previous = (entries.coordinate == winner[k - 1]) & (delay < 0)
    activations = int((in_stage & ~late_previous).sum())
    return time, bool(entries.sign[own] == sign[k]), activations


def _is_resolved(predictions: Predictions, k: int, log10_alpha: float, flow_end: float) -> bool:
    """Return whether stage k lasts MANY transitions, and leads by as many, before the flow ends.

    False for a stage that did not come to rest, whose transition is NaN.
    """
    begins, until, margin, transition = (float(column[k]) for column in predictions[2:])
    room = min(until - begins, margin, flow_end - begins)  # in rescaled time
    many = MANY * (transition / (-log10_alpha * math.log(10)))
    return log10_alpha <= LARGEST_ALPHA and room >= many


def error_dataset(stages: list[StageInFlow]) -> xr.Dataset:
    """Return activation_error and resolved(alpha, stage), as `activation_errors` draws them."""
    alphas = sorted({stage.log10_alpha for stage in stages}, reverse=True)
    numbers = sorted({stage.stage for stage in stages})
    in_order = sorted(stages, key=lambda stage: (-stage.log10_alpha, stage.stage))
    shape = len(alphas), len(numbers)
    errors = np.array([abs(stage.error) for stage in in_order]).reshape(shape)
    resolved = np.array([stage.resolved for stage in in_order]).reshape(shape)
    return xr.Dataset(
        {
            "activation_error": (("alpha", "stage"), errors),
            "resolved": (("alpha", "stage"), resolved),
        },
        coords={"log10_alpha": ("alpha", alphas), "stage": numbers},
    )
