"""Learning-rate schedules: factors of the peak rate, as functions of the step."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable


@runtime_checkable
class RateSchedule(Protocol):
    """A function from step to factor of the peak rate; equal schedules compare equal."""

    def __call__(self, step: int) -> float: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Constant:
    """The peak rate at every step."""

    def __call__(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Drops:
    """A rate that is multiplied by `factor` at each of the steps `at`."""

    at: tuple[int, ...]
    factor: float = 0.1

    def __call__(self, step: int) -> float:
        return self.factor ** sum(step >= drop for drop in self.at)


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up over `warm_up` steps, then half a cosine down to `floor` at step `span`.

    A training shorter than `span` ends above the floor.
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
    """Sum of the factors over all steps; times peak rate and decay, the total decay applied."""
    return math.fsum(schedule(step) for step in range(steps))
