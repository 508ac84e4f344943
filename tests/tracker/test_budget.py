"""A budget leaves out due steps, never the first one nor one that is asked for."""

import time
from itertools import pairwise
from typing import ClassVar

import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.snapshot import Plan
from rankscope.tracker import budget as module
from rankscope.tracker.budget import Budget, chosen_budget
from rankscope.tracker.schedules import LogSpaced
from tracker.tracked import network, track

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
EMPTY = Plan((), (), ())


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(module.time, "thread_time", lambda: self.now)
        monkeypatch.setattr(module.time, "process_time", lambda: self.used)

    @property
    def used(self) -> float:
        """CPU time: other processes take three quarters of the machine."""
        return self.now / 4


def spend(budget: Budget, clock: Clock, *, seconds: float) -> None:
    budget.submitted()
    with budget.measuring():
        clock.now += seconds


def test_the_share_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of 2 s, wanted at every second, take 5% of the time at every moment."""
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        budget = Budget(0.05, expected_seconds=2.0, cores=None)
        budget.start()
        begin = clock.now
        while clock.now < begin + 1000:
            clock.now += 1
            if budget.affords_another():
                spend(budget, clock, seconds=2.0)
            assert budget.seconds <= 0.05 * (clock.now - begin)
    assert budget.seconds >= 0.05 * 1000 - 4


@pytest.mark.parametrize(("cpu_trains", "spent"), [(True, 12.0), (False, 50.0)])
def test_a_loaded_machine_does_not_lengthen_a_run(monkeypatch, cpu_trains, spent: float) -> None:
    """Snapshots of 1 s of CPU time in 1000 s, of which training on the CPU has 250."""
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        budget = Budget(0.05, expected_seconds=1.0, cores=1, cpu_trains=cpu_trains)
        budget.start()
        for _ in range(1000):
            clock.now += 1
            if budget.affords_another():
                budget.seconds += 1.0
    assert budget.seconds == spent


def test_short_runs_spread_what_is_free_over_all_due_steps(monkeypatch) -> None:
    """Snapshots of 10 ms are taken at about every second due step, until 0.1 s are spent."""
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        budget = Budget(0.05, expected_seconds=0.01, cores=None)
        budget.start()
        taken = []
        for due in range(60):
            if budget.affords_another():
                spend(budget, clock, seconds=0.01)
                taken.append(due)
    assert taken[:1] == [1] and taken[-1] < 25
    assert budget.seconds == pytest.approx(module.FREE_SECONDS, abs=0.011)
    assert max(later - earlier for earlier, later in pairwise(taken)) <= 5


def test_snapshots_under_way_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        clock = Clock(patch)
        budget = Budget(0.5, expected_seconds=1.0, cores=2)
        budget.start()
        clock.now += 3.0
        assert budget.affords_another()
        budget.submitted()
        assert not budget.affords_another()  # two of 1 s are more than half of 3 s
        with budget.measuring():
            clock.now += 0.125
        assert budget.seconds == 0.25  # two cores
        with budget.copying():
            clock.now += 0.25
        assert budget.seconds == 0.5


@pytest.mark.parametrize(
    ("share", "schedule", "applied"),
    [
        ("auto", None, 0.05),
        ("auto", LogSpaced(), None),
        ("auto", "log", None),
        ("auto", 1, None),
        (0.2, 1, 0.2),
        (0.2, None, 0.2),
        (None, None, None),
    ],
)
def test_an_explicit_schedule_is_a_promise(share, schedule, applied: float | None) -> None:
    budget = chosen_budget(share, schedule, EMPTY, home=CPU, measurer="thread", threads=1)
    assert applied == (None if budget is None else budget.share)


@pytest.mark.parametrize("share", [0.0, -0.1, 2.0, float("nan")])
def test_a_share_lies_between_0_and_1(tmp_path, share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        rs.Tracker(network(), tmp_path / "run", budget=share)


@pytest.mark.parametrize(
    ("home", "measurer", "threads", "cores"),
    [
        (CPU, "thread", 1, 1),
        (CPU, "thread", 3, 3),
        (CPU, "process", 1, 1),
        (CUDA, "process", 4, None),  # other cores measure
        (CUDA, "thread", 4, 1),  # holds Python's lock
    ],
)
def test_what_counts_as_cost(home, measurer, threads: int, cores: int | None) -> None:
    budget = chosen_budget(0.1, None, EMPTY, home=home, measurer=measurer, threads=threads)
    assert budget is not None and budget._cores == cores
    assert budget._cpu_trains == (home is CPU)


class Slow:
    """A probe that takes most of a second of CPU time."""

    directions: ClassVar[dict[str, int]] = {}

    def __call__(self, tensors, directions) -> dict[str, float]:
        end = time.thread_time() + 0.15
        while time.thread_time() < end:
            pass
        return {}


def test_an_expensive_snapshot_is_left_out_and_the_run_says_so(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", probe=Slow(), strict=True) as tracker:
        for step in range(30):
            tracker.observe(step)
            if step == 0:
                tracker.flush()  # its cost is known now
            if step == 4:
                tracker.snapshot(step)
        tracker.snapshot(30)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 4, 30]
    due = [step for step in range(30) if LogSpaced()(step)]
    assert ds.attrs["left_out"] == [step for step in due if step not in (0, 4)]
    assert ds.attrs["budget"] == 0.05
    assert ds.attrs["tracking_seconds"] >= 3 * 0.15


def test_the_first_snapshot_of_a_run_is_taken_whatever_it_costs(tmp_path) -> None:
    options = {"schedule": 5, "budget": 1e-9, "probe": Slow()}
    with rs.Tracker(network(), tmp_path / "run", **options) as tracker:
        for step in range(3, 20):
            tracker.observe(step)
            tracker.flush()
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [5] and ds.attrs["left_out"] == [10, 15]


def test_cheap_snapshots_of_a_short_run_are_taken(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "FREE_SECONDS_PER_STEP", 1.0)
    monkeypatch.setattr(module, "FREE_SECONDS", 60.0)
    with rs.Tracker(nn.Linear(3, 3), tmp_path / "run", places=40) as tracker:
        for step in range(40):
            tracker.observe(step)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [step for step in range(40) if LogSpaced()(step)]
    assert "left_out" not in ds.attrs


def test_a_run_without_a_budget_says_nothing_of_one(tmp_path) -> None:
    attrs = track(tmp_path / "run", steps=range(3)).attrs
    assert not {"budget", "left_out", "tracking_seconds"} & attrs.keys()
