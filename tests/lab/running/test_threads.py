"""Runs in threads of this process: the same outcome as in processes."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.toy_runs import Decay, Log, stored
from rankscope.lab.running.run_key import Progress
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.running.threads import execute

TOGETHER = threading.Barrier(2, timeout=30)


@dataclass(frozen=True)
class Meeting:
    """Ends only if another one runs at the same time."""

    inner: Decay = Decay()  # noqa: RUF009

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        TOGETHER.wait()
        self.inner.execute(path, seed=seed, progress=progress)


def test_runs_share_the_process_and_failures_stay_alone(tmp_path: Path) -> None:
    runs = stored(tmp_path, Meeting(), Meeting(), Decay(fails=(0,)))
    ended = execute(runs, jobs=2, watcher=Log())
    assert [run.state for run in runs] == ["whole", "whole", "interrupted"] and runs[2].failure
    assert sorted(e.title for e in ended if e.failure is None) == ["run-0, seed 0", "run-1, seed 0"]


@dataclass(frozen=True)
class Endless:
    """Goes on until its report is refused."""

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        while True:
            progress(0.5)
            time.sleep(0.01)


class Impatient(Log):
    """Presses Ctrl-C at the first word of a run."""

    def progressed(self, title: str, fraction: float, note: str = "") -> None:
        raise KeyboardInterrupt


def test_ctrl_c_ends_runs_under_way(tmp_path: Path) -> None:
    runs = stored(tmp_path, Endless(), Endless(), Endless())
    with pytest.raises(KeyboardInterrupt):
        execute(runs, jobs=2, watcher=Impatient())
    assert [run.state for run in runs] == ["interrupted", "interrupted", "missing"]
    assert all(run.failure is None for run in runs)


def test_a_full_disk_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stored: StoredRun, sentence: str, trace: str = "") -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(StoredRun, "fail", full)
    (ended,) = execute(stored(tmp_path, Decay(fails=(0,))), jobs=1, watcher=Log())
    assert ended.failure == "ArithmeticError: the loss is not a number"
