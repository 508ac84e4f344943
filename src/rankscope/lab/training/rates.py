"""Learning rates over training, as factors of the peak rate: functions of the step alone."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable


@runtime_checkable
class RateSchedule(Protocol):
    """The factor of the peak rate at a step; equal schedules are equal objects."""

    def __call__(self, step: int) -> float: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Constant:
    """The peak rate throughout."""

    def __call__(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Drops:
    """Multiplied by `factor` at each of the steps `at`."""

    at: tuple[int, ...]
    factor: float = 0.1

    def __call__(self, step: int) -> float:
        return self.factor ** sum(step >= drop for drop in self.at)


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up over `warm_up` steps, then half a cosine down to `floor` at step `span`.

    A training shorter than `span` ends before the floor: yunis2024's language model does.
    """

    span: int
    warm_up: int = 0
    floor: float = 0.0

    def __call__(self, step: int) -> float:
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        done = min((step - self.warm_up) / max(self.span - self.warm_up, 1), 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


@cache
def total(schedule: RateSchedule, steps: int) -> float:
    """The sum of the factors: with peak rate and decay, how much decay acted in all."""
    return math.fsum(schedule(step) for step in range(steps))
