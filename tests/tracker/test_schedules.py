import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.tracker.schedules import At, Epochs, Every, LogEpochs, LogSpaced, as_schedule


def due(schedule, until: int) -> list[int]:
    return [step for step in range(until) if schedule(step)]


def test_every() -> None:
    assert due(Every(3), 10) == [0, 3, 6, 9]


def test_at() -> None:
    assert due(At([7, 2]), 10) == [2, 7]


def test_the_papers_cadence() -> None:
    """yunis2024: init, four times inside the first epoch, then every epoch."""
    assert due(Epochs(10), 41) == [0, 2, 4, 6, 8, 10, 20, 30, 40]


def test_epochs_thinned_out() -> None:
    """The end of the first one is no later epoch."""
    assert due(Epochs(10, first=0, every=2), 61) == [0, 10, 20, 40, 60]
    assert due(Epochs(10, first=1, every=3), 61) == [0, 5, 10, 30, 60]


def test_epochs_shorter_than_the_first_parts() -> None:
    assert due(Epochs(2), 7) == [0, 1, 2, 4, 6]


@given(per_decade=st.integers(1, 30), decade=st.integers(2, 5))
def test_log_spacing_has_that_many_steps_in_a_decade(per_decade: int, decade: int) -> None:
    schedule = LogSpaced(per_decade)
    low = 10**decade
    grid = {int(-(-(10 ** (decade + j / per_decade)) // 1)) for j in range(per_decade)}
    hits = {step for step in grid | {g - 1 for g in grid} | {g + 1 for g in grid} if schedule(step)}
    assert len([step for step in hits if low <= step < 10 * low]) == per_decade


def test_log_spacing_starts_with_every_step() -> None:
    assert due(LogSpaced(16), 6) == [0, 1, 2, 3, 4, 5]


def test_what_people_write() -> None:
    assert as_schedule(5) == Every(5)
    assert as_schedule([1, 2]) == At([1, 2])
    assert as_schedule(None) == LogSpaced()
    assert as_schedule(Every(2)) == Every(2)


def test_epochs_spaced_like_powers() -> None:
    inside = [2, 4, 6, 8]
    assert due(LogEpochs(10, per_decade=1), 10_001) == [0, *inside, 10, 100, 1000, 10_000]
    epochs = due(LogSpaced(7), 200)
    assert due(LogEpochs(10, first=0, per_decade=7), 2000) == [10 * epoch for epoch in epochs]


@pytest.mark.parametrize("make", [lambda: Every(0), lambda: LogSpaced(0), lambda: Epochs(0)])
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make()
