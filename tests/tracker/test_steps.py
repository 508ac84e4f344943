"""Steps that a training loop passes, or leaves to be counted."""

from pathlib import Path

import numpy as np
import pytest
import torch

import rankscope as rs
from rankscope.tracker.notices import Notices
from rankscope.tracker.steps import StepCounter
from tracker.tracked import network, take_step


def counter() -> StepCounter:
    return StepCounter(Notices(Path("run"), strict=False))


def test_steps_are_counted_if_none_is_given(tmp_path) -> None:
    model = network()
    for _ in range(2):  # the second time, the run is resumed
        with rs.Tracker(
            model, tmp_path / "run", schedule=2, every_step="loss", resume=True
        ) as tracker:
            for value in range(5):
                tracker.observe(loss=float(value))
                take_step(model, value)
    ds = rs.open(tmp_path / "run")
    assert list(ds.train_step.values) == list(range(10))
    assert list(ds.step.values) == [0, 2, 4, 6, 8]
    assert list(ds.loss_every_step.values) == [0, 1, 2, 3, 4] * 2


def test_a_snapshot_without_a_step_is_that_of_the_next_one(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=[0, 3]) as tracker:
        for _ in range(4):
            tracker.snapshot(loss=1.0)
            tracker.observe(loss=2.0)
        tracker.snapshot()
        tracker.snapshot()
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2, 3, 4]
    assert list(ds.loss.values[:4]) == [1.0] * 4


def test_a_step_that_restarts_each_epoch_is_counted_on(tmp_path) -> None:
    model = network()
    with (
        pytest.warns(RuntimeWarning, match="step 0 came after 3 and is counted as 4") as caught,
        rs.Tracker(model, tmp_path / "run", schedule=1, every_step="loss") as tracker,
    ):
        for epoch in range(3):
            for step in range(4):
                tracker.observe(step, loss=float(4 * epoch + step))
        tracker.snapshot(4)
    assert len(caught) == 1 and tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == list(range(13))
    assert list(ds.loss_every_step.values) == [float(step) for step in range(12)]


def test_distances_stay_when_steps_restart() -> None:
    steps = counter()
    with pytest.warns(RuntimeWarning, match="must increase over the whole run"):
        numbers = [steps.observe(step) for step in (0, 10, 20, 0, 10, 20, 5)]
    assert numbers == [0, 10, 20, 21, 31, 41, 42]


def test_a_step_that_comes_twice_is_ignored(tmp_path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="step 1 was observed twice") as caught,
        rs.Tracker(network(), tmp_path / "run", schedule=1, every_step="loss") as tracker,
    ):
        for step in (0, 1, 1, 2, 2):
            tracker.observe(step, loss=float(step))
    assert len(caught) == 1 and list(rs.open(tmp_path / "run").step.values) == [0, 1, 2]


@pytest.mark.parametrize("step", [torch.tensor(7), np.int32(7), 7.0])
def test_whole_numbers_of_any_kind(step: object) -> None:
    assert counter().observe(step) == 7


@pytest.mark.parametrize("step", ["7", 7.5, [7], 2**70, -(2**70), 1e300])
def test_what_is_no_step_is_counted(step: object) -> None:
    steps = counter()
    assert steps.observe(3) == 3
    with pytest.warns(RuntimeWarning, match="a step is a whole number") as caught:
        assert [steps.observe(step), steps.observe(step)] == [4, 5]
    assert len(caught) == 1


def test_a_snapshot_of_an_earlier_step_follows_the_last(tmp_path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="step 1 came after 5 and is counted as 6"),
        rs.Tracker(network(), tmp_path / "run", schedule=[0, 5]) as tracker,
    ):
        for step in range(6):
            tracker.observe(step)
        tracker.snapshot(1)  # the number of an epoch, say
        tracker.observe(6)
        tracker.snapshot(9)
        tracker.observe(7)  # due or not, step 9 is stored already
    assert list(rs.open(tmp_path / "run").step.values) == [0, 5, 6, 9]
    assert tracker.failed is None


def test_a_step_back_is_an_exception_if_strict(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(5)
        with pytest.raises(ValueError, match="step 4 came after 5"):
            tracker.observe(4)
