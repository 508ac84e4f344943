"""Flows from several alphas beside Algorithm 1, stage by stage (boix2023, Theorem 4.5).

Alphas are given as their log10, since 1e-1000 is no float.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured
from rankscope.lab.judging.selected_runs import Needs, Runs
from rankscope.lab.running.run_key import RunKey
from rankscope.theory.algorithm import MANY

ALGORITHM = "algorithm"
LARGEST_ALPHA = -8.0  # log10: above it no stage is called resolved
UNFINISHED = "the solver gave up on a flow, so this seed cannot tell"


def flows_and_algorithm(largest: float = math.inf, smallest: float = -math.inf) -> Needs:
    """Return the needs of a claim on flows beside Algorithm 1.

    They are every run of Algorithm 1, and its network's flows whose log10 of alpha lies between
    these bounds.
    """

    def needs(keys: Sequence[RunKey]) -> Collection[RunKey]:
        followed = {(key.experiment, key.network) for key in keys if key.kind == ALGORITHM}
        return [
            key
            for key in keys
            if (key.experiment, key.network) in followed
            and (key.kind == ALGORITHM or _has_alpha(key, largest, smallest))
        ]

    return needs


def _has_alpha(key: RunKey, largest: float, smallest: float) -> bool:
    log10_alpha = key.variant.get("log10_alpha")
    return log10_alpha is not None and smallest <= float(log10_alpha) <= largest


class SeedOfNetwork(NamedTuple):
    """Algorithm 1 and the flows, the largest alpha first, of one network and seed."""

    key: RunKey
    seed: int
    algorithm: xr.Dataset
    flows: dict[float, xr.Dataset]

    @property
    def ties(self) -> str:
        """The stages in which Algorithm 1 has no unique winner, in words; "" if there are none."""
        tied = self.algorithm["stage"].to_numpy()[self.algorithm["stage_tied"].to_numpy() > 0]
        if not len(tied):
            return ""
        return (
            f"{self.key.network}, seed {self.seed}: Algorithm 1 ties in stage "
            f"{', '.join(map(str, tied))}, so this seed cannot tell"
        )

    def placed(self, measured: Measured) -> Measured:
        """Return the measurement with its place; it cannot tell if a flow is unfinished."""
        placed = measured.at(self.key, self.seed)
        finished = all(flow.attrs["finished"] for flow in self.flows.values())
        return placed if finished else placed.without_outcome(UNFINISHED)

    def placed_unless_tied(self, measured: Measured) -> Measured:
        """Return the measurement with its place; it cannot tell if Algorithm 1 ties either.

        Assumption 4.2 asks for a unique winner in every stage.
        """
        placed = self.placed(measured)
        return placed.without_outcome(self.ties) if self.ties else placed


def seeds_of_networks(runs: Runs) -> Iterator[SeedOfNetwork]:
    """Yield every network and seed that has a run of Algorithm 1."""
    for key in runs.kind(ALGORITHM):
        for seed, algorithm in runs[key].items():
            yield SeedOfNetwork(key, seed, algorithm, flows_of(runs, key.network, seed))


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
    the winner among them; 0 if the winner never does.
    newly_active: the same, but around T_k if the winner never becomes active.
    resolved: the stage lasts long enough at this alpha to be told from its neighbours.
    """

    log10_alpha: float
    stage: int
    winner: str
    predicted: float
    time: float
    same_sign: bool
    activations: int
    newly_active: int
    resolved: bool

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
        for k in range(1, len(predictions.winner)):
            time, same_sign = _of_winner(predictions, k, entries)
            never = math.isnan(time)
            around = float(predictions.time[k]) if never else time
            newly_active = _activations(predictions, k, entries, around)
            stages.append(
                StageInFlow(
                    log10_alpha=log10_alpha,
                    stage=k,
                    winner=names[predictions.winner[k]],
                    predicted=float(predictions.time[k]),
                    time=time,
                    same_sign=same_sign,
                    activations=0 if never else newly_active,
                    newly_active=newly_active,
                    resolved=_is_resolved(predictions, k, log10_alpha, flow_end),
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


def _of_winner(predictions: Predictions, k: int, entries: Entries) -> tuple[float, bool]:
    """Return when stage k's winner enters, NaN if never, and whether with the predicted sign."""
    winner, sign, *_ = predictions
    earlier_wins = int((winner[:k] == winner[k]).sum())
    of_winner = np.flatnonzero(entries.coordinate == winner[k])
    if len(of_winner) <= earlier_wins:
        return math.nan, False
    own = of_winner[earlier_wins]
    return float(entries.time[own]), bool(entries.sign[own] == sign[k])


def _activations(predictions: Predictions, k: int, entries: Entries, time: float) -> int:
    """Count entries from half of the stage before `time` until half of stage k after it."""
    winner, _, begins, until, *_ = predictions
    delay = entries.time - time
    lasts, previous_lasts = until[k] - begins[k], begins[k] - begins[k - 1]
    in_stage = (delay > -previous_lasts / 2) & (delay <= lasts / 2)
    # The winner of the stage before may be late, which is no fault of this stage.
    late_previous = (entries.coordinate == winner[k - 1]) & (delay < 0)
    return int((in_stage & ~late_previous).sum())


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
