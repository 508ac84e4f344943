"""Runs that take no time, for tests of what is around them; importable by other processes."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from rankscope.lab.running.processes import Ended
from rankscope.lab.running.run_key import Run, RunKey
from rankscope.lab.running.stored_run import StoredRun
from rankscope.store import Variable, Writer

VARIABLES = {"time": Variable(("time",), np.float64), "loss": Variable(("time",), np.float64)}


@dataclass(frozen=True)
class Decay:
    """loss(t) = (1 + seed) exp(-rate t), a row at a time; the seeds of `fails` break half way."""

    rate: float = 1.0
    steps: int = 4
    fails: tuple[int, ...] = ()
    interrupted: bool = False
    note: str = field(default="", compare=False)

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        with Writer.create(path, coords={}, variables=VARIABLES, attrs={"rate": self.rate}) as out:
            for step in range(self.steps):
                out.append(step, {"loss": (1 + seed) * np.exp(-self.rate * step)}, along="time")
                progress((step + 1) / self.steps)
                if seed in self.fails and 2 * step > self.steps:
                    raise ArithmeticError("the loss\nis not a number")
                if self.interrupted and 2 * step > self.steps:
                    raise KeyboardInterrupt


@dataclass(frozen=True)
class Surroundings:
    """Writes which process it ran in and what that has."""

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        attrs = {
            "pid": os.getpid(),
            "threads": torch.get_num_threads(),
            "environment": os.environ.get("OMP_NUM_THREADS"),
            "device": "a device of its own",
        }
        Writer.create(path, coords={}, variables=VARIABLES, attrs=attrs).close()


@dataclass(frozen=True)
class Killed:
    """Ends as by the kernel when memory runs out."""

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Idle:
    """Writes nothing."""

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        progress(1)


def stored(folder: Path, *runs: Run, seed: int = 0) -> list[StoredRun]:
    """Return stored runs called run-0, run-1, ..."""
    return [
        StoredRun(RunKey(f"run-{i}"), seed, run, folder / f"run-{i}" / f"seed-{seed}")
        for i, run in enumerate(runs)
    ]


class Log:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.fractions: dict[str, list[float]] = {}

    def started(self, title: str) -> None:
        self.events.append(("started", title))

    def progressed(self, title: str, fraction: float, note: str = "") -> None:
        self.fractions.setdefault(title, []).append(fraction)

    def ended(self, ended: Ended) -> None:
        self.events.append(("failed" if ended.failure else "ended", ended.title))
