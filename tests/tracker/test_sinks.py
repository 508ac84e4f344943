"""Sinks see the run after each commit, beside training, and can harm neither."""

import threading
import time
from pathlib import Path

import pytest
import xarray as xr

import rankscope as rs
from rankscope.tracker import sinks
from tracker.tracked import network, track


def test_a_sink_sees_the_run_up_to_each_snapshot(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    losses: list[float] = []
    threads: set[threading.Thread] = set()

    def sink(run: xr.Dataset) -> None:
        seen.append(run.step.values.tolist())
        losses.append(float(run.loss[-1]))
        threads.add(threading.current_thread())

    track(tmp_path / "run", steps=range(3), sinks=[sink])
    assert seen == [[0], [0, 1], [0, 1, 2]]
    assert losses == [0.0, 1.0, 2.0]
    assert len(threads) == 1 and threading.current_thread() not in threads
    assert not threads.pop().is_alive()


def test_a_failing_sink_warns_once_and_the_others_go_on(tmp_path: Path) -> None:
    steps: list[int] = []

    def broken(run: xr.Dataset) -> None:
        raise OSError("no route to host")

    with pytest.warns(RuntimeWarning) as caught:
        run = track(
            tmp_path / "run",
            steps=range(4),
            sinks=[broken, lambda run: steps.append(int(run.step[-1]))],
        )
    (warning,) = caught
    assert str(warning.message) == (
        f"rankscope, {tmp_path / 'run'}: the sink broken failed at step 0 and training goes on: "
        "OSError: no route to host"
    )
    assert steps == run.step.values.tolist() == [0, 1, 2, 3]


def test_training_does_not_wait_for_a_slow_sink(tmp_path: Path) -> None:
    gate, seen = threading.Event(), []

    def slow(run: xr.Dataset) -> None:
        gate.wait(30)
        seen.append(int(run.step[-1]))

    with rs.Tracker(network(), tmp_path / "run", schedule=1, sinks=slow) as tracker:
        for step in range(6):  # more than there are places for copies
            tracker.observe(step)
        deadline = time.monotonic() + 30
        while tracker.committed != 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert tracker.committed == 5 and not seen
        gate.set()
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_sink_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "PATIENCE", 0.3)
    gate = threading.Event()
    with pytest.warns(RuntimeWarning, match="a sink has not returned for 0.3 seconds"):
        run = track(tmp_path / "run", sinks=[lambda run: gate.wait(30)])
    gate.set()
    assert run.step.values.tolist() == [0]
