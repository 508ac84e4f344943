"""Defaults of a tracker."""

import os

import pytest
import torch

from rankscope.snapshot import Plan
from rankscope.tracker import Tracker, defaults

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("cores, threads", [(1, 1), (3, 1), (8, 2), (16, 4)])
def test_a_quarter_of_the_cores_while_a_gpu_trains(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    monkeypatch.setattr(defaults, "cores", lambda: cores)
    assert defaults.worker_threads(CUDA) == threads
    assert defaults.worker_threads(CPU) == 1
    assert "one if the CPU trains, else a quarter" in (Tracker.__doc__ or "")


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert defaults.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert defaults.cores() == 1


def test_the_host_measures_unless_matrices_are_large() -> None:
    assert defaults.measuring_device(CUDA, Plan((), (), ())) == CPU


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="processes share memory on Linux only")
def test_a_process_measures_on_the_host_while_a_gpu_trains() -> None:
    assert defaults.measurer_kind(CUDA, CPU) == "process"
    assert defaults.measurer_kind(CUDA, CUDA) == "thread"
    assert defaults.measurer_kind(CPU, CPU) == "thread"
