"""Time contenders in turns, so that a slow moment of the machine affects all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from rich.table import Table

Contenders = Mapping[str, Callable[[], object]]
Clock = Callable[[], float]


def by_turns(
    contenders: Contenders, *, rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each contender in every round, after a warm-up round.

    The order alternates, since the contender that goes second meets a warmer machine.
    """
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1, rounds):
        for name in names if turn % 2 else reversed(names):
            elapsed = seconds_of(contenders[name], clock)
            if turn >= 0:
                times[name].append(elapsed)
    return times


def seconds(
    contenders: Contenders, *, rounds: int = 5, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Median time of each contender."""
    times = by_turns(contenders, rounds=rounds, clock=clock)
    return {name: statistics.median(values) for name, values in times.items()}


def ratios(times: Mapping[str, float], *, to: str) -> dict[str, float]:
    """Time of each contender divided by that of `to`."""
    return {name: value / times[to] for name, value in times.items()}


def seconds_of(run: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    wait_for_gpu()
    start = clock()
    run()
    wait_for_gpu()
    return clock() - start


def wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def table(title: str, first: str, *others: str) -> Table:
    """Return a table without rows; all columns but the first hold numbers."""
    empty = Table(title=title)
    empty.add_column(first)
    for heading in others:
        empty.add_column(heading, justify="right")
    return empty


def silent(fraction: float, note: str = "") -> None:
    """Report a run's progress to nobody."""
