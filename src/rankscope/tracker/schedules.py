"""Schedules say which steps are snapshots.

They are functions of the step alone: the processes of a distributed run agree without talking, and
a training of unknown length needs no plan.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """A function that returns whether a step is due."""

    def __call__(self, step: int) -> bool: ...


@dataclass(frozen=True)
class Every:
    """Step 0 and every `steps` steps after it."""

    steps: int

    def __post_init__(self) -> None:
        _require_positive(steps=self.steps)

    def __call__(self, step: int) -> bool:
        return step % self.steps == 0


@dataclass(frozen=True)
class LogSpaced:
    """Step 0, then about `per_decade` steps in every factor of ten: fine early, open-ended late."""

    per_decade: int = 16

    def __post_init__(self) -> None:
        _require_positive(per_decade=self.per_decade)

    def __call__(self, step: int) -> bool:
        if step < 1:
            return step == 0
        # Due when `step` is the first integer at or past a grid point 10^(j / per_decade).
        j = math.floor(math.log10(step) * self.per_decade + 1e-9)
        return step == math.ceil(10 ** (j / self.per_decade) - 1e-9)


@dataclass(frozen=True)
class At:
    """Exactly the given steps."""

    steps: frozenset[int]

    def __init__(self, steps: Iterable[int]) -> None:
        object.__setattr__(self, "steps", frozenset(steps))

    def __call__(self, step: int) -> bool:
        return step in self.steps


@dataclass(frozen=True)
class Epochs:
    """Step 0, `first` steps inside the first epoch, and the end of each epoch.

    The default is the cadence of yunis2024: at initialisation, four times inside the first epoch,
    then every epoch. With `every=n` later epochs count only if n divides them.
    """

    steps_per_epoch: int
    first: int = 4
    every: int = 1

    def __post_init__(self) -> None:
        _require_positive(steps_per_epoch=self.steps_per_epoch, every=self.every)

    def __call__(self, step: int) -> bool:
        if 0 < step < self.steps_per_epoch:
            return _begins_part(step, self.steps_per_epoch, self.first + 1)
        return step == self.steps_per_epoch or step % (self.steps_per_epoch * self.every) == 0


@dataclass(frozen=True)
class LogEpochs:
    """`Epochs` for long trainings: about `per_decade` epochs in every factor of ten."""

    steps_per_epoch: int
    first: int = 4
    per_decade: int = 12

    def __post_init__(self) -> None:
        _require_positive(steps_per_epoch=self.steps_per_epoch, per_decade=self.per_decade)

    def __call__(self, step: int) -> bool:
        epoch, inside = divmod(step, self.steps_per_epoch)
        if inside:
            return epoch == 0 and _begins_part(step, self.steps_per_epoch, self.first + 1)
        return LogSpaced(self.per_decade)(epoch)


def _begins_part(step: int, steps: int, parts: int) -> bool:
    """Return whether a later one of `parts` equal parts of range(steps) begins at `step`."""
    return any(step == i * steps // parts for i in range(1, parts))


def as_schedule(schedule: object) -> Schedule:
    """Return the schedule for a number, a string, a list of steps, a schedule, or None."""
    if schedule is None:
        return LogSpaced()
    if isinstance(schedule, str):
        return _parsed(schedule)
    if isinstance(schedule, Schedule) and not isinstance(schedule, type):
        return schedule
    if isinstance(schedule, bool | bytes):
        raise _unknown(schedule)
    try:
        return Every(operator.index(schedule))  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        steps = [operator.index(step) for step in schedule]  # type: ignore[attr-defined]
    except TypeError:
        raise _unknown(schedule) from None
    if not steps or min(steps) < 0:
        raise ValueError(f"schedule: expected steps of 0 and above, got {schedule!r}")
    return At(steps)


def _parsed(text: str) -> Schedule:
    kind, _, number = text.partition(":")
    if text == "log":
        return LogSpaced()
    if kind not in ("log", "every") or not (number.isascii() and number.isdigit()):
        raise _unknown(text)
    return LogSpaced(int(number)) if kind == "log" else Every(int(number))


def _unknown(schedule: object) -> ValueError:
    return ValueError(
        f"schedule: got {schedule!r}; pass a whole number n (every n steps), a list of steps, "
        '"log", "log:32" (32 steps in every factor of ten), "every:100", '
        "or a function of the step such as rankscope.Every(100)"
    )


def _require_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"schedule: {name} must be at least 1, got {value}")
