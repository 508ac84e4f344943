"""Measuring in a process of its own: the same numbers, and no harm when it dies."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.tracker.shared_memory import Layout, SharedMemory
from tracker.tracked import network, track

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="sharing memory without a path needs Linux"
)


def test_a_process_measures_what_a_thread_measures(tmp_path) -> None:
    runs = []
    for beside in ("thread", "process"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 3))
        options = {"pairs": [rs.Pair("0", "2")], "beside": beside}
        runs.append(track(tmp_path / beside, model, steps=range(4), **options))
    here, there = runs
    assert set(here) == set(there)
    for name in here:
        if not name.startswith("tracker_"):
            np.testing.assert_array_equal(here[name].values, there[name].values, err_msg=name)


def test_a_killed_process_does_not_stop_training(tmp_path) -> None:
    with pytest.warns(RuntimeWarning, match="ended with exit code -9") as caught:
        tracker = rs.Tracker(network(), tmp_path / "run", schedule=1, beside="process")
        tracker.observe(0)
        tracker.flush()
        os.kill(tracker._recorder._measurer._child.pid, signal.SIGKILL)
        for step in (1, 2, 3, 4):
            tracker.observe(step)
        tracker.flush()
        tracker.close()
    assert len(caught) == 1
    assert list(rs.open(tmp_path / "run").step.values) == [0]


@pytest.mark.parametrize("sent", ["nothing", "the setup"])
def test_a_stopped_process_does_not_stop_training(tmp_path, monkeypatch, sent: str) -> None:
    monkeypatch.setattr("rankscope.tracker.measurers.PATIENCE", 0.5)
    with pytest.warns(RuntimeWarning, match="was stopped: it used no CPU time") as caught:
        # The setup with its reference is too large for the pipe of a process that does not read.
        model = nn.Linear(300, 300)
        tracker = rs.Tracker(
            model, tmp_path / "run", schedule=1, places=1, beside="process", reference=model
        )
        if sent == "the setup":
            tracker.observe(0)
            tracker.flush()
        child = tracker._recorder._measurer._child
        os.kill(child.pid, signal.SIGSTOP)
        for step in range(1, 5):
            tracker.observe(step)
        tracker.close()
    assert len(caught) == 1 and child.returncode == -signal.SIGKILL
    stored = [0] if sent == "the setup" else []
    assert list(rs.open(tmp_path / "run").step.values) == stored


def test_a_process_that_computes_for_long_is_left_alone(tmp_path, monkeypatch) -> None:
    # Less than a decomposition takes, and more than a busy machine makes a process wait.
    monkeypatch.setattr("rankscope.tracker.measurers.PATIENCE", 0.8)
    with rs.Tracker(
        nn.Linear(1500, 1500), tmp_path / "run", schedule=1, beside="process", strict=True
    ) as tracker:
        for step in range(4):
            tracker.observe(step)
    assert rs.open(tmp_path / "run").sizes["step"] == 4


def test_it_closes_although_a_forked_worker_holds_its_connection(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1, beside="process") as tracker:
        tracker.observe(0)
        tracker.flush()
        forked = os.fork()
        if forked == 0:
            time.sleep(60)
            os._exit(0)
        try:
            began = time.monotonic()
            tracker.close()
            assert time.monotonic() - began < 5
        finally:
            os.kill(forked, signal.SIGKILL)
            os.waitpid(forked, 0)


def test_a_process_that_had_nothing_to_measure_says_nothing(tmp_path, capfd) -> None:
    track(tmp_path / "run", steps=(), beside="process")
    assert capfd.readouterr().err == ""


PARENT = """
import sys, torch, rankscope as rs
tracker = rs.Tracker(torch.nn.Linear(4, 4), sys.argv[1], schedule=1, beside="process")
tracker.observe(0)
tracker.flush()
print(tracker._recorder._measurer._child.pid, flush=True)
input()
"""


def test_it_ends_with_the_process_it_measures_for(tmp_path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)  # it lives
        parent.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and is_running(pid):
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_shared_memory_holds_every_dtype_and_shape() -> None:
    tensors = {
        "half": torch.randn(3, 5).bfloat16(),
        "empty": torch.zeros(0, 4),
        "double": torch.randn(7, dtype=torch.float64),
        "float": torch.randn(2, 3, 4),
    }
    memory = SharedMemory.create(Layout.of(tensors, blocks=2))
    for block in (0, 1):
        for name, shared in memory.tensors(block).items():
            shared.copy_(tensors[name] + block)
    again = SharedMemory(memory.descriptor, memory.layout)
    for block in (0, 1):
        for name, shared in again.tensors(block).items():
            assert torch.equal(shared, tensors[name] + block), name
    memory.close()
