"""Claims B2 and B3: coordinates become active one by one, in the order and at the times predicted.

Algorithm 1 is compared with the times at which |z| crosses a threshold in the flows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.stages import (
    LARGEST_ALPHA,
    StageInFlow,
    flows_and_algorithm,
    seeds_of_networks,
    stages_in_flows,
)

AGREEMENT = 0.05
COMPARED = 3  # alphas, the smallest
DECISIVE_ALPHA = -300.0  # log10
NEAR = 0.01  # of T_k, at that alpha


def measure_activations(runs: Runs) -> Iterator[Measured]:
    """Ask that at most one coordinate becomes active in each resolved stage.

    Stages are resolved at alphas of 1e-8 and below only. A coordinate belongs to a stage from half
    of the stage before until half of its own. A seed without resolved stages cannot tell, nor one
    in which Algorithm 1 ties.
    """
    for entry in seeds_of_networks(runs):
        stages = _resolved(stages_in_flows(entry.algorithm, entry.flows))
        crowded = [stage for stage in stages if stage.newly_active > 1]
        rows = tuple(_activation_row(stage, stage.newly_active) for stage in crowded)
        most = max((stage.newly_active for stage in stages), default=None)
        met = None if most is None else most <= 1
        yield entry.placed_unless_tied(Measured(most, met, rows=rows))


def _resolved(stages: Iterable[StageInFlow]) -> list[StageInFlow]:
    return [stage for stage in stages if stage.resolved]


def _activation_row(stage: StageInFlow, activations: int) -> Mapping[str, Cell]:
    return {
        "alpha": f"1e{stage.log10_alpha:g}",
        "stage": stage.stage,
        "winner": stage.winner,
        "coordinates": activations,
    }


B2 = Rule(
    claim="B2",
    sentence="at most one coordinate becomes active per stage",
    quantity="most coordinates that become active in one stage",
    bound="<= 1",
    measure=measure_activations,
    needs=flows_and_algorithm(LARGEST_ALPHA),
    table="stages in which more than one coordinate becomes active",
    changed=True,
    reason=(
        "The first rule asks for exactly one coordinate, where the paper says at most one, and "
        "counts networks in which Algorithm 1 ties, which Assumption 4.2 excludes."
    ),
)


def measure_first_activations(runs: Runs) -> Iterator[Measured]:
    """Ask that exactly one coordinate becomes active in each resolved stage.

    Stages are resolved at alphas of 1e-8 and below only. A coordinate belongs to a stage from half
    of the stage before until half of its own. If none becomes active, the flow does not have the
    stage. A seed without resolved stages cannot tell.
    """
    for entry in seeds_of_networks(runs):
        stages = _resolved(stages_in_flows(entry.algorithm, entry.flows))
        others = [stage for stage in stages if stage.activations != 1]
        rows = tuple(_activation_row(stage, stage.activations) for stage in others)
        value = farthest_from_one(stage.activations for stage in stages)
        yield entry.placed(Measured(value, None if value is None else not rows, rows=rows))


def farthest_from_one(numbers: Iterable[int]) -> int | None:
    """Return the number farthest from one, the larger of two; None if there is none."""
    return max(numbers, key=lambda number: (abs(number - 1), number), default=None)


B2_FIRST = Rule(
    claim="B2-first",
    headline="B2",
    sentence=B2.sentence,
    quantity="coordinates that become active in the stage farthest from one",
    bound="= 1",
    measure=measure_first_activations,
    needs=flows_and_algorithm(),
    table="stages in which not exactly one coordinate becomes active",
)


def measure_times(runs: Runs) -> Iterator[Measured]:
    """Ask that activation times approach those of Algorithm 1, in its order.

    E(alpha) is the largest |t_k - T_k| / T_k over the stages resolved at the largest of the three
    smallest alphas. It has to fall over these three, and to be 1% or less at 1e-300. At every alpha
    of 1e-8 and below, resolved stages have to come in Algorithm 1's order and with its signs. A
    seed cannot tell without such stages, or if 1e-300 or three alphas were not run.
    """
    for entry in seeds_of_networks(runs):
        stages = stages_in_flows(entry.algorithm, entry.flows)
        alphas = sorted(entry.flows)[:COMPARED]
        at_largest = (s for s in _resolved(stages) if s.log10_alpha == alphas[-1])
        numbers = {stage.stage for stage in at_largest}
        counted = [stage for stage in stages if stage.stage in numbers]
        rows = tuple(_error_rows(stages, counted))
        errors = _largest_errors(counted)
        value, met = errors.get(DECISIVE_ALPHA), None
        if value is not None and len(alphas) == COMPARED:
            falls = bool((np.diff([errors[log10_alpha] for log10_alpha in alphas]) > 0).all())
            met = falls and value <= NEAR and _all_in_order(stages)
        yield entry.placed(Measured(value, met, rows=rows))


def _largest_errors(stages: Iterable[StageInFlow]) -> dict[float, float]:
    """Return the largest |t_k - T_k| / T_k by log10 of alpha; NaN if a winner never came."""
    by_alpha: dict[float, list[float]] = {}
    for stage in stages:
        by_alpha.setdefault(stage.log10_alpha, []).append(abs(stage.error))
    return {log10_alpha: float(np.max(errors)) for log10_alpha, errors in by_alpha.items()}


def _all_in_order(stages: Sequence[StageInFlow]) -> bool:
    """Return whether resolved stages come in order, and with the right signs, at every alpha."""
    alphas = {stage.log10_alpha for stage in stages}
    by_alpha = ([s for s in _resolved(stages) if s.log10_alpha == alpha] for alpha in alphas)
    return all(map(_in_order, by_alpha))


def _in_order(stages: Sequence[StageInFlow]) -> bool:
    times = [stage.time for stage in stages]
    return all(stage.same_sign for stage in stages) and bool((np.diff(times) > 0).all())


def _error_rows(
    stages: Sequence[StageInFlow], counted: Collection[StageInFlow]
) -> Iterator[Mapping[str, Cell]]:
    """Yield errors of each stage in percent, at alphas from 1e-8 down; NaN if it never came."""
    for number in sorted({stage.stage for stage in stages}):
        at_alphas = [stage for stage in stages if stage.stage == number]
        winner, predicted = at_alphas[0].winner, round(at_alphas[0].predicted, 4)
        row: dict[str, Cell] = {"stage": number, "winner": winner, "T_k": predicted}
        for stage in at_alphas:
            if stage.log10_alpha <= LARGEST_ALPHA:
                alpha = f"1e{stage.log10_alpha:g}"
                row |= {alpha: 100 * stage.error, f"{alpha} counts": stage in counted}
        yield row


B3 = Rule(
    claim="B3",
    sentence="stages come in Algorithm 1's order, at its times up to O(1/log(1/alpha))",
    quantity="largest |t_k - T_k| / T_k at 1e-300",
    bound=f"<= {NEAR:g}, falling over the three smallest alphas, in the same order",
    measure=measure_times,
    needs=flows_and_algorithm(LARGEST_ALPHA),
    table="(t_k - T_k) / T_k in percent, by alpha, and whether the stage counts",
    changed=True,
    reason=(
        "The first rule asks that log(1/alpha) (t_k - T_k) is one constant, where the paper says "
        "only that times converge. It also takes other stages at one alpha than at the next."
    ),
)


def measure_constants(runs: Runs) -> Iterator[Measured]:
    """Ask that log(1/alpha) (t_k - T_k) agrees within 5% at the two smallest alphas.

    At every alpha the coordinates of resolved stages have to come in Algorithm 1's order and with
    its signs. A seed in which no stage is resolved at both alphas cannot tell.
    """
    for entry in seeds_of_networks(runs):
        stages = stages_in_flows(entry.algorithm, entry.flows)
        first, second = (
            [stage for stage in _resolved(stages) if stage.log10_alpha == log10_alpha]
            for log10_alpha in sorted(entry.flows)[:2]
        )
        disagreement = _disagreement(first, second)
        in_order = _all_in_order(stages)
        met = None if disagreement is None else disagreement <= AGREEMENT and in_order
        rows = tuple(_error_rows(stages, _resolved(stages)))
        yield entry.placed(Measured(disagreement, met, rows=rows))


def _disagreement(one: Iterable[StageInFlow], other: Iterable[StageInFlow]) -> float | None:
    """Return the largest relative difference of the constants of stages given at both alphas."""
    first, second = ({stage.stage: stage.constant for stage in stages} for stages in (one, other))
    both = sorted(first.keys() & second.keys())
    return max((abs(second[k] / first[k] - 1) for k in both), default=None)


B3_FIRST = Rule(
    claim="B3-first",
    headline="B3",
    sentence=B3.sentence,
    quantity="largest disagreement of log(1/alpha) (t_k - T_k) between the two smallest alphas",
    bound=f"<= {AGREEMENT:g}",
    measure=measure_constants,
    needs=flows_and_algorithm(),
    table="(t_k - T_k) / T_k in percent, by alpha, and whether the stage counts there",
)
