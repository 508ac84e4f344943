"""Time contenders in turns, so that a slow moment of the machine affects all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def seconds(contenders: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Median wall time of each contender over `rounds`, after a warm-up round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            elapsed = _seconds_of(run)
            if turn > 0:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def ratios(times: Mapping[str, float], *, to: str) -> dict[str, float]:
    """Time of each contender divided by that of `to`."""
    return {name: value / times[to] for name, value in times.items()}


def _seconds_of(run: Callable[[], object]) -> float:
    _wait_for_gpu()
    start = time.perf_counter()
    run()
    _wait_for_gpu()
    return time.perf_counter() - start


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
