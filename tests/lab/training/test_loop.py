"""Checkpoints of the loop, and trainings that are killed and resumed."""

import math
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.training.test_training_run import RUN, executed, same_but_for_times
from lab.training.toy_task import silent
from rankscope import store
from rankscope.lab.running.processes import attempt
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training import loop
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.lab.training.optimizers import AdamW, Sgd
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Tracker


@pytest.mark.parametrize("optimizer", [Sgd(rate=0.1, decay=0.01), AdamW(rate=0.01, decay=0.1)])
def test_a_resumed_run_is_the_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Sgd | AdamW
) -> None:
    run = replace(RUN, optimizer=optimizer, rate=Cosine(60, warm_up=5))
    whole = executed(run, tmp_path / "whole")
    stored = killed_at_35(run, tmp_path / "killed", monkeypatch)
    state = torch.load(tmp_path / "killed.checkpoint", weights_only=True)
    assert state["step"] == 34  # between snapshots
    assert attempt(stored, silent).failure is None
    assert not list(tmp_path.glob("*.checkpoint*"))
    same_but_for_times(store.open(stored.path).load(), whole)


class Killed(Exception):
    pass


def killed_at_35(run: TrainingRun, path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A training that fails before step 35 is counted, with a checkpoint at every step."""
    stored, tick = StoredRun(RunKey("toy"), 0, run, path), loop.Meter.tick

    def deadly(meter: loop.Meter, step: int, loss: torch.Tensor) -> None:
        if step == 35:
            raise Killed(f"at step {step}")
        tick(meter, step, loss)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(loop, "CHECKPOINT_SHARE", math.inf)
        patch.setattr(loop.Meter, "tick", deadly)
        assert attempt(stored, silent).failure == "Killed: at step 35"
    assert stored.state == "interrupted" and stored.resumable
    return stored


@pytest.fixture
def saved_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps at which checkpoints are saved."""
    steps: list[int] = []
    save = Checkpoint.save

    def counted(checkpoint: Checkpoint, step: int, *state: Any) -> None:
        steps.append(step)
        save(checkpoint, step, *state)

    monkeypatch.setattr(Checkpoint, "save", counted)
    return steps


def killed_in_a_process(path: Path) -> None:
    """Trains slowly enough to be killed; checkpoints at every snapshot."""
    loop.CHECKPOINT_SECONDS, loop.CHECKPOINT_SHARE = -1.0, math.inf
    tick = loop.Meter.tick

    def slowly(meter: loop.Meter, step: int, loss: torch.Tensor) -> None:
        time.sleep(0.05 if step > 25 else 0)
        tick(meter, step, loss)

    loop.Meter.tick = slowly  # type: ignore[method-assign]
    attempt(StoredRun(RunKey("toy"), 0, RUN, path), silent)


def test_a_slow_tracker_makes_checkpoints_no_rarer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved_at: list[int]
) -> None:
    flush = Tracker.flush
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 1.0)

    def slow(tracker: Tracker) -> None:
        time.sleep(0.05)
        flush(tracker)

    monkeypatch.setattr(Tracker, "flush", slow)
    executed(replace(RUN, steps=20), tmp_path / "run")
    assert len(saved_at) >= 6


@pytest.mark.parametrize(("delay", "expected"), [(math.inf, {16, 17, 18, 19}), (0.0, {1, 2, 3})])
def test_a_checkpoint_waits_for_the_tracker_until_it_is_late(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    saved_at: list[int],
    delay: float,
    expected: set[int],
) -> None:
    """The tracker reports nothing as stored until step 15."""
    now, committed = [0], Tracker.committed
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 1e-9)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", math.inf)
    monkeypatch.setattr(loop, "CHECKPOINT_DELAY", delay)

    def tick(meter: loop.Meter, step: int, loss: torch.Tensor) -> None:
        now[0] = step

    def late(tracker: Tracker) -> int | None:
        tracker.flush()
        assert committed.fget is not None
        return committed.fget(tracker) if now[0] > 15 else None

    monkeypatch.setattr(loop.Meter, "tick", tick)
    monkeypatch.setattr(Tracker, "committed", property(late))
    executed(replace(RUN, steps=20), tmp_path / "run")
    assert expected <= set(saved_at) and (delay == 0 or set(saved_at) == expected)


def test_a_killed_process_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=killed_in_a_process, args=(path,))
    child.start()
    checkpoint = path.with_name("run.checkpoint")
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or torch.load(checkpoint)["step"] < 20:
        assert time.monotonic() < deadline and child.is_alive()
        time.sleep(0.01)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    stored = StoredRun(RunKey("toy"), 0, RUN, path)
    assert stored.resumable
    assert attempt(stored, silent).failure is None
    same_but_for_times(store.open(path).load(), executed(RUN, tmp_path / "whole"))


def test_another_declaration_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at_35(RUN, tmp_path / "run", monkeypatch)
    changed = StoredRun(RunKey("toy"), 0, replace(RUN, batch=30), tmp_path / "run")
    assert not changed.resumable
    assert attempt(changed, silent).failure is None
    same_but_for_times(
        store.open(changed.path).load(), executed(replace(RUN, batch=30), tmp_path / "whole")
    )


def test_a_checkpoint_whose_store_was_deleted_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = killed_at_35(RUN, tmp_path / "run", monkeypatch)
    left, copied = (tmp_path / f"{name}.checkpoint" for name in ("run", "copied"))
    shutil.copy(left, copied)
    with RUN.assembled(tmp_path / "copied", seed=0, progress=silent) as (_, first):
        assert first == 0 and left.exists() and not copied.exists()
    shutil.rmtree(stored.path)
    assert attempt(stored, silent).failure is None
    assert len(store.open(stored.path)["step"]) == 7
