"""Cost of gradient flow: against gradient descent, for several alphas, and at the paper's size.

python -m benchmarks.theory
"""

import math
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import table
from rankscope.lab.papers.boix2023.simulations.algorithm import stages_before
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask, Toy, horizon
from rankscope.theory import Trajectory, descend, flow

SMALL, SMALL_STAGES = DiagonalTask(d=12, tokens=6, samples=100), 6
PAPER, PAPER_STAGES = DiagonalTask(d=50, tokens=10, samples=1000), 12
ALPHAS = (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0, -300.0, -1000.0)  # log10
PRECISION = 1e-3  # relative error allowed in gradient descent's activation times
COARSE = (64.0, 32.0)  # first step sizes, in units of the guess: the error is first order
CORES = 2


def main() -> None:
    console = Console()
    console.print(against_descent(SMALL, SMALL_STAGES))
    console.print(from_alpha_to_alpha(SMALL, SMALL_STAGES))
    console.print(whole_experiment(PAPER, PAPER_STAGES))


def against_descent(task: DiagonalTask, stages: int) -> Table:
    """Compare the flow at 1e-32 with descent, whose step is the largest that is precise enough."""
    toy = task.build(0)
    reference = flow_to(toy, -32.0, stages)
    rows = table(
        f"1e-32, through {stages} activations, {task}",
        *("", "step", "largest error of a time", "gradient evaluations", "ratio"),
    )
    evaluations = reference.gradient_evaluations
    rows.add_row("flow", "", "", f"{evaluations}", "1")
    for attempt in descents(toy, reference):
        ratio = attempt.steps / evaluations
        error, step = f"{attempt.error:.2e}", f"{attempt.rate:.3g}"
        rows.add_row("gradient descent", step, error, f"{attempt.steps}", f"{ratio:.0f}")
    rows.caption = f"the last step is the largest within {PRECISION:g}, to 5%; bar: ratio >= 20"
    return rows


class Attempt(NamedTuple):
    """Gradient descent with one step size; `error` is the largest relative error of its times."""

    rate: float
    error: float
    steps: int


def descents(toy: Toy, reference: Trajectory) -> list[Attempt]:
    """Try two coarse steps, then extrapolate from the last two until one is just precise enough."""
    # A step multiplies u + v by 1 + rate g, not e^{rate g}: times are late by about rate g / 2.
    guess = 2 * PRECISION * reference.activations[0].time
    attempts = [attempt(toy, reference, factor * guess) for factor in COARSE]
    while not 0.95 * PRECISION <= attempts[-1].error <= PRECISION and len(attempts) < 6:
        # error = slope rate + curvature rate^2 through the last two
        (a, error_a, _), (b, error_b, _) = attempts[-2:]
        curvature = (error_a / a - error_b / b) / (a - b)
        slope = error_b / b - curvature * b
        aim = 0.98 * PRECISION
        rate = 2 * aim / (slope + math.sqrt(max(slope**2 + 4 * curvature * aim, 0.0)))
        attempts.append(attempt(toy, reference, rate))
    return attempts


def attempt(toy: Toy, reference: Trajectory, rate: float) -> Attempt:
    activations = reference.activations
    steps = math.ceil(1.2 * activations[-1].time * -reference.log_alpha / rate)
    trajectory = descend(
        toy.network,
        toy.u0,
        toy.v0,
        math.exp(reference.log_alpha),
        rate=rate,
        steps=steps,
        every=steps,
        stop_after=len(activations),
    )
    times = {entry.coordinate: entry.time for entry in trajectory.activations}
    errors = [abs(times.get(a.coordinate, math.inf) / a.time - 1) for a in activations]
    return Attempt(rate, max(errors), trajectory.gradient_evaluations)


def from_alpha_to_alpha(task: DiagonalTask, stages: int) -> Table:
    """Compare the evaluations that several alphas need for the same number of activations."""
    toy = task.build(0)
    alphas = (-32.0, -300.0, -1000.0, -10000.0)
    evaluations_by_alpha = {
        alpha: flow_to(toy, alpha, stages).gradient_evaluations for alpha in alphas
    }
    rows = table(
        f"through {stages} activations, {task}", "alpha", "gradient evaluations", "to 1e-32"
    )
    for alpha, evaluations in evaluations_by_alpha.items():
        rows.add_row(
            f"1e{alpha:g}", f"{evaluations}", f"{evaluations / evaluations_by_alpha[-32.0]:.2f}"
        )
    rows.caption = "bar: 1e-300 at most twice 1e-32"
    return rows


def flow_to(toy: Toy, alpha: float, stages: int) -> Trajectory:
    """Run the flow until `stages` coordinates are active; record only its end."""
    end = 2 * horizon(toy, stages)
    nowhere = torch.zeros(1, dtype=torch.float64)
    log_alpha = alpha * math.log(10)
    return flow(toy.network, toy.u0, toy.v0, log_alpha, end, times=nowhere, stop_after=stages)


class Cost(NamedTuple):
    """Cost of one run; the seconds include its `horizon`."""

    name: str
    seconds: float
    evaluations: int | None
    done: str


def whole_experiment(task: DiagonalTask, stages: int) -> Table:
    """Time nine flows and Algorithm 1 in two single-threaded processes, as `rankscope run` does."""
    began = time.perf_counter()
    with ProcessPoolExecutor(
        CORES, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        algorithm = pool.submit(algorithm_cost, task, stages)  # first: it takes longest
        flows = [pool.submit(flow_cost, task, alpha, stages) for alpha in reversed(ALPHAS)]
        costs = [future.result() for future in (algorithm, *flows)]
    total = time.perf_counter() - began
    rows = table(f"to {stages} activations at 1e-8, {task}", "run", "seconds", "evaluations", "")
    for cost in costs:
        evaluations = "" if cost.evaluations is None else f"{cost.evaluations}"
        rows.add_row(cost.name, f"{cost.seconds:.1f}", evaluations, cost.done)
    rows.add_row("together", f"{total:.0f}", "", f"{CORES} processes of one thread")
    rows.caption = "bar: 360 seconds together"
    return rows


def flow_cost(task: DiagonalTask, alpha: float, stages: int) -> Cost:
    began = time.perf_counter()
    toy = task.build(0)
    end = horizon(toy, stages)
    trajectory = flow(toy.network, toy.u0, toy.v0, alpha * math.log(10), end)
    seconds = time.perf_counter() - began
    return Cost(f"1e{alpha:g}", seconds, trajectory.gradient_evaluations, trajectory.message)


def algorithm_cost(task: DiagonalTask, stages: int) -> Cost:
    began = time.perf_counter()
    toy = task.build(0)
    upcoming = stages_before(toy, horizon(toy, stages))
    lengths, last = [], time.perf_counter()
    for _ in upcoming:
        lengths.append(time.perf_counter() - last)
        last = time.perf_counter()
    seconds = " ".join(f"{length:.1f}" for length in lengths[1:])
    done = f"{len(lengths) - 1} stages; seconds of each: {seconds}"
    return Cost("Algorithm 1", time.perf_counter() - began, None, done)


if __name__ == "__main__":
    main()
