import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.tracker.schedules import (
    At,
    Epochs,
    Every,
    LogEpochs,
    LogSpaced,
    Schedule,
    as_schedule,
)


def due(schedule, until: int) -> list[int]:
    return [step for step in range(until) if schedule(step)]


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        (Every(3), [0, 3, 6, 9]),
        (At([7, 2]), [2, 7]),
        (LogSpaced(16), [0, 1, 2, 3, 4, 5]),
        # yunis2024: at initialisation, four times inside the first epoch, then every epoch.
        (Epochs(10), [0, 2, 4, 6, 8, 10, 20, 30, 40]),
        # The end of the first epoch counts although `every` does not divide it.
        (Epochs(10, first=0, every=2), [0, 10, 20, 40, 60]),
        (Epochs(10, first=1, every=3), [0, 5, 10, 30, 60]),
        (Epochs(2), [0, 1, 2, 4, 6]),  # shorter than the first parts
        (LogEpochs(10, per_decade=1), [0, 2, 4, 6, 8, 10, 100, 1000, 10_000]),
    ],
)
def test_steps_that_are_due(schedule: Schedule, steps: list[int]) -> None:
    assert due(schedule, steps[-1] + 1) == steps


@given(per_decade=st.integers(1, 30), decade=st.integers(2, 5))
def test_log_spacing_has_that_many_steps_in_a_decade(per_decade: int, decade: int) -> None:
    schedule = LogSpaced(per_decade)
    low = 10**decade
    grid = {int(-(-(10 ** (decade + j / per_decade)) // 1)) for j in range(per_decade)}
    hits = {step for step in grid | {g - 1 for g in grid} | {g + 1 for g in grid} if schedule(step)}
    assert len([step for step in hits if low <= step < 10 * low]) == per_decade


def test_what_people_write() -> None:
    assert as_schedule(5) == Every(5)
    assert as_schedule([1, 2]) == At([1, 2])
    assert as_schedule(None) == LogSpaced()
    assert as_schedule(Every(2)) == Every(2)
    assert as_schedule("log") == LogSpaced()
    assert as_schedule("log:32") == LogSpaced(32)
    assert as_schedule("every:100") == Every(100)
    assert as_schedule(np.int64(5)) == Every(5)
    assert as_schedule(np.array([1, 2])) == as_schedule(range(1, 3)) == At([1, 2])
    assert due(as_schedule(lambda step: step == 3), 9) == [3]


@pytest.mark.parametrize(
    "schedule",
    [
        *("", "linear", "log:", "log:x", "log:-1", "log:1:2", "every", "every: 5", "LOG", b"log"),
        *(0.5, 5.0, True, [0.5], ["log"], [[1]], Every, {"log": 1}, object),
    ],
)
def test_other_schedules_are_refused_with_what_works(schedule: object) -> None:
    with pytest.raises(ValueError, match=r'"log:32" .*"every:100".*rankscope.Every'):
        as_schedule(schedule)


def test_a_count_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        as_schedule("every:0")


def test_epochs_are_spaced_like_powers() -> None:
    epochs = due(LogSpaced(7), 200)
    assert due(LogEpochs(10, first=0, per_decade=7), 2000) == [10 * epoch for epoch in epochs]


@pytest.mark.parametrize("make", [lambda: Every(0), lambda: LogSpaced(0), lambda: Epochs(0)])
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make()
