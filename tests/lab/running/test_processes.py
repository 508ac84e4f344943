import os
import threading
import time
from functools import partial
from multiprocessing import Pipe, active_children
from pathlib import Path
from signal import SIGINT, default_int_handler, raise_signal, signal

import pytest
import torch

from lab.toy_runs import Decay, Idle, Killed, Log, Surroundings
from lab.toy_runs import stored as toy_runs
from rankscope import store
from rankscope.lab.running.processes import _send, attempt, execute, throttled


def test_one_after_another_in_this_process(tmp_path: Path) -> None:
    log, (first, second) = Log(), toy_runs(tmp_path, Decay(), Surroundings())
    ended = execute([first, second], jobs=1, watcher=log)
    assert [run.failure for run in ended] == [None, None]
    assert log.events == [
        (what, run.title) for run in (first, second) for what in ("started", "ended")
    ]
    assert log.fractions == {first.title: [0.25, 0.5, 0.75, 1.0]}
    assert store.open(second.path).attrs["pid"] == os.getpid()
    assert 0 < store.open(first.path).attrs["wall_seconds"] <= ended[0].seconds


def test_a_failure_is_kept_and_the_others_go_on(tmp_path: Path) -> None:
    log, stored = Log(), toy_runs(tmp_path, Decay(fails=(0,)), Idle(), Decay())
    broken, idle, fine = execute(stored, jobs=1, watcher=log)
    assert broken.failure == stored[0].failure == "ArithmeticError: the loss is not a number"
    assert 'raise ArithmeticError("the loss' in stored[0].failure_file.read_text()
    assert store.open(stored[0].path).sizes["time"] == 4  # what there was until then
    assert idle.failure is not None and "Idle.execute wrote no store" in idle.failure
    assert fine.failure is None
    assert [run.state for run in stored] == ["interrupted", "interrupted", "whole"]


def test_an_interruption_is_not_a_failure(tmp_path: Path) -> None:
    stored = toy_runs(tmp_path, Decay(), Decay(interrupted=True), Decay())
    with pytest.raises(KeyboardInterrupt):
        execute(stored, jobs=1, watcher=Log())
    assert [run.state for run in stored] == ["whole", "interrupted", "missing"]
    assert stored[1].failure is None


def test_two_at_a_time_in_processes_of_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fails, one is killed and takes its process along; the others are whole."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads = torch.get_num_threads()
    log = Log()
    stored = toy_runs(
        tmp_path, Surroundings(), Killed(), Decay(fails=(0,)), Surroundings(), Decay()
    )
    ended = {run.title: run for run in execute(stored, jobs=2, watcher=log)}
    assert [run.state for run in stored] == [
        "whole", "interrupted", "interrupted", "whole", "whole"
    ]  # fmt: skip
    assert "exit code -9" in (stored[1].failure or "")
    assert (stored[2].failure or "").startswith("ArithmeticError")
    assert [bool(ended[run.title].failure) for run in stored] == [False, True, True, False, False]
    assert [title for what, title in log.events if what == "started"] == [r.title for r in stored]
    seen = [store.open(stored[i].path).attrs for i in (0, 3)]
    assert all(attrs["pid"] != os.getpid() for attrs in seen)
    assert all((attrs["threads"], attrs["environment"]) == (1, "1") for attrs in seen)
    assert log.fractions[stored[4].title][0] == 0.25
    assert os.environ["OMP_NUM_THREADS"] == "2" and torch.get_num_threads() == threads


def test_ctrl_c_ends_the_processes_and_keeps_what_is_finished(tmp_path: Path) -> None:
    log = Log()
    endless = Decay(steps=10**9)
    stored = toy_runs(tmp_path, Decay(), endless, endless)
    before = set(children())

    over = threading.Event()

    def interrupt() -> None:
        everyone = {run.title for run in stored}
        for _ in range(6000):  # a minute: without an interruption the runs would never end
            if stored[0].state == "whole" and log.fractions.keys() >= everyone:
                break
            time.sleep(0.01)
        raise_signal(SIGINT)
        while not over.wait(10):  # should it have met a finalizer, which swallows it
            raise_signal(SIGINT)

    interrupter = threading.Thread(target=interrupt)
    heard = signal(SIGINT, default_int_handler)  # a shell's background jobs do not hear Ctrl-C
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            execute(stored, jobs=2, watcher=log)
    finally:
        over.set()
        interrupter.join()
        signal(SIGINT, heard)
    assert set(children()) <= before
    assert [run.state for run in stored] == ["whole", "interrupted", "interrupted"]
    assert [run.failure for run in stored] == [None] * 3


def children() -> list[str]:
    return [child.name for child in active_children()]


def test_a_process_whose_parent_is_gone_ends_without_blaming_the_run(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    ours.close()
    (stored,) = toy_runs(tmp_path, Decay())
    with pytest.raises(SystemExit):
        attempt(stored, throttled(partial(_send, theirs), seconds=0.0))
    assert stored.state == "interrupted" and stored.failure is None
