"""Claims B1-B4: stages of the loss and of the coordinates, and the conservation law.

B1-B3 compare Algorithm 1 with the times at which |z| crosses a threshold in the flows.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.stages import (
    LARGEST_ALPHA,
    StageInFlow,
    flows_of,
    stages_in_flows,
)
from rankscope.lab.running.run_key import RunKey

ALGORITHM = "algorithm"
CONSERVATION = "conservation"
AGREEMENT = 0.05
DRIFT = 1e-8
ROUNDING = 16.0  # float64 roundings in one step of gradient descent
UNFINISHED = "the solver gave up on a flow, so this seed cannot tell"


def flows_and_algorithm(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the flows of every network that has a run of Algorithm 1, and that run."""
    followed = {(key.experiment, key.network) for key in keys if key.kind == ALGORITHM}
    return [
        key
        for key in keys
        if (key.experiment, key.network) in followed
        and (key.kind == ALGORITHM or "log10_alpha" in key.variant)
    ]


class SeedOfNetwork(NamedTuple):
    """Algorithm 1 and the flows, the largest alpha first, of one network and seed."""

    key: RunKey
    seed: int
    algorithm: xr.Dataset
    flows: dict[float, xr.Dataset]

    def placed(self, measured: Measured) -> Measured:
        """Return the measurement with its place; it cannot tell if a flow is unfinished."""
        placed = measured.at(self.key, self.seed)
        finished = all(flow.attrs["finished"] for flow in self.flows.values())
        return placed if finished else placed.without_outcome(UNFINISHED)


def _seeds(runs: Runs) -> Iterator[SeedOfNetwork]:
    for key in runs.kind(ALGORITHM):
        for seed, algorithm in runs[key].items():
            yield SeedOfNetwork(key, seed, algorithm, flows_of(runs, key.network, seed))


def measure_sharpness(runs: Runs, *, saturated: float = math.inf) -> Iterator[Measured]:
    """Ask that the share of the loss's fall in the steepest tenth of rescaled time rises.

    It has to rise from each alpha to the next smaller one. A share above `saturated` need not rise
    any more.
    """
    for entry in _seeds(runs):
        shares = np.array([steepest_share(flow) for flow in entry.flows.values()])
        rises = np.diff(shares)[shares[1:] <= saturated]
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


B1 = Rule(
    claim="B1",
    sentence="the loss falls in stages, sharper as alpha falls",
    quantity="smallest rise, alpha by alpha, of the loss's share in the steepest tenth of time",
    bound="> 0",
    measure=measure_sharpness,
    needs=flows_and_algorithm,
    table="share of the loss's decrease in the steepest tenth of rescaled time, by alpha",
)
B1_SATURATED = replace(
    B1,
    claim="B1-saturated",
    headline="B1",
    quantity=f"{B1.quantity}; shares of 1 need not rise",
    measure=partial(measure_sharpness, saturated=1 - 1e-9),
    reason="Made after the first runs: B1 asks a share that is 1 already to rise.",
)

# Whether a stage counts for a rule: if it is resolved, or if it is clear.
Counts = Callable[[StageInFlow], bool]
RESOLVED, CLEAR = attrgetter("resolved"), attrgetter("clear")
ONLY_CLEAR = "only stages with all before them resolved"


def measure_activations(runs: Runs, *, counts: Counts = RESOLVED) -> Iterator[Measured]:
    """Ask that exactly one coordinate becomes active in each stage that counts.

    Stages are resolved at alphas of 1e-8 and below only. A coordinate belongs to a stage from half
    of the stage before until half of its own. If none becomes active, the flow does not have the
    stage. A seed without stages that count cannot tell.
    """
    for entry in _seeds(runs):
        stages = list(filter(counts, stages_in_flows(entry.algorithm, entry.flows)))
        rows: tuple[Mapping[str, Cell], ...] = tuple(
            {
                "alpha": f"1e{stage.log10_alpha:g}",
                "stage": stage.stage,
                "winner": stage.winner,
                "coordinates": stage.activations,
            }
            for stage in stages
            if stage.activations != 1
        )
        value = farthest_from_one(stage.activations for stage in stages)
        yield entry.placed(Measured(value, None if value is None else not rows, rows=rows))


def farthest_from_one(numbers: Iterable[int]) -> int | None:
    """Return the number farthest from one, the larger of two; None if there is none."""
    return max(numbers, key=lambda number: (abs(number - 1), number), default=None)


B2 = Rule(
    claim="B2",
    sentence="one coordinate becomes active per stage",
    quantity="coordinates that become active in the stage farthest from one",
    bound="= 1",
    measure=measure_activations,
    needs=flows_and_algorithm,
    table="stages in which not exactly one coordinate becomes active",
)
B2_CLEAR = replace(
    B2,
    claim="B2-clear",
    headline="B2",
    quantity=f"{B2.quantity}; {ONLY_CLEAR}",
    measure=partial(measure_activations, counts=CLEAR),
    reason=(
        "Made after the first runs: B2-clear counts a stage only if all stages before it are "
        "resolved. Others end late, and what they delay can fall into a later, resolved stage."
    ),
)


def measure_times(runs: Runs, *, counts: Counts = RESOLVED) -> Iterator[Measured]:
    """Ask that log(1/alpha) (t_k - T_k) agrees within 5% at the two smallest alphas.

    At every alpha the coordinates of the stages that count have to come in Algorithm 1's order and
    with its signs. A seed in which no stage counts at both alphas cannot tell.
    """
    for entry in _seeds(runs):
        stages = stages_in_flows(entry.algorithm, entry.flows)
        by_alpha = [
            [stage for stage in stages if stage.log10_alpha == log10_alpha and counts(stage)]
            for log10_alpha in sorted(entry.flows)
        ]
        disagreement = _disagreement(*by_alpha[:2])
        in_order = all(map(_in_order, by_alpha))
        met = None if disagreement is None else disagreement <= AGREEMENT and in_order
        rows = tuple(_error_rows(stages, counts))
        yield entry.placed(Measured(disagreement, met, rows=rows))


def _disagreement(one: Iterable[StageInFlow], other: Iterable[StageInFlow]) -> float | None:
    """Return the largest relative difference of the constants of stages given at both alphas."""
    first, second = ({stage.stage: stage.constant for stage in stages} for stages in (one, other))
    both = sorted(first.keys() & second.keys())
    return max((abs(second[k] / first[k] - 1) for k in both), default=None)


def _in_order(stages: Sequence[StageInFlow]) -> bool:
    times = [stage.time for stage in stages]
    return all(stage.same_sign for stage in stages) and bool((np.diff(times) > 0).all())


def _error_rows(stages: Sequence[StageInFlow], counts: Counts) -> Iterator[Mapping[str, Cell]]:
    """Yield errors of each stage in percent, at alphas from 1e-8 down; NaN if it never came."""
    for number in sorted({stage.stage for stage in stages}):
        at_alphas = [stage for stage in stages if stage.stage == number]
        winner, predicted = at_alphas[0].winner, round(at_alphas[0].predicted, 4)
        row: dict[str, Cell] = {"stage": number, "winner": winner, "T_k": predicted}
        for stage in at_alphas:
            if stage.log10_alpha <= LARGEST_ALPHA:
                alpha = f"1e{stage.log10_alpha:g}"
                row |= {alpha: 100 * stage.error, f"{alpha} counts": counts(stage)}
        yield row


B3 = Rule(
    claim="B3",
    sentence="stages come in Algorithm 1's order, at its times up to O(1/log(1/alpha))",
    quantity="largest disagreement of log(1/alpha) (t_k - T_k) between the two smallest alphas",
    bound=f"<= {AGREEMENT:g}",
    measure=measure_times,
    needs=flows_and_algorithm,
    table="(t_k - T_k) / T_k in percent, by alpha, and whether the stage counts there",
)
B3_CLEAR = replace(
    B3,
    claim="B3-clear",
    headline="B3",
    quantity=f"{B3.quantity}; {ONLY_CLEAR}",
    measure=partial(measure_times, counts=CLEAR),
    reason=(
        "Made after the first runs: B3-clear counts a stage only if all stages before it are "
        "resolved, since others delay those that follow."
    ),
)


def measure_conservation(runs: Runs) -> Iterator[Measured]:
    """Ask that u^2 - v^2 drifts by less than 1e-8 of itself along the flow in (u, v).

    One step of gradient descent has to multiply it by 1 - rate^2 g^2, up to 16 roundings.
    """
    for key in runs:
        for seed, ds in runs[key].items():
            drift, error = float(ds["drift"].max()), float(ds["gd_error"].max())
            row = {
                "drift of the flow": drift,
                "error of gradient descent's identity, in roundings": round(error, 2),
            }
            measured = Measured(drift, drift < DRIFT and error <= ROUNDING, rows=(row,))
            measured = measured.at(key, seed)
            yield measured if ds.attrs["finished"] else measured.without_outcome(UNFINISHED)


B4 = Rule(
    claim="B4",
    sentence="u² - v² is conserved along the flow",
    quantity="drift relative to u² - v² itself",
    bound="< 1e-8",
    measure=measure_conservation,
    needs=runs_of(kind=CONSERVATION),
    table="the conservation law",
)

RULES = (B1, B1_SATURATED, B2, B2_CLEAR, B3, B3_CLEAR, B4)
