"""Where runs are executed: the device and the data of trainings, this machine or a Ray cluster, by
one process each or by several together."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from rankscope.lab.experiment import Experiment
from rankscope.lab.running import processes, threads, torchrun
from rankscope.lab.running.processes import Ended, Watcher
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.task import Machine

Device = Literal["cpu", "cuda"]
On = Literal["here", "ray"]
# Called with the runs, which may be none, `jobs` and `watcher`.
Execute = Callable[..., list[Ended]]

GPU_SHARE = 0.2  # of a GPU for each run on a cluster: five runs use one better than one alone does


@dataclass(frozen=True)
class Placement:
    """The machine of trainings, and who executes runs; by default processes on this machine's CPU.

    follow: what a process does that only takes part in what another one executes; True if it went
        well.
    """

    machine: Machine = Machine()  # noqa: RUF009
    execute: Execute = processes.execute
    follow: Callable[[], bool] | None = None


def choose_placement(
    *, device: Device | None = None, data: Path | None = None, on: On = "here"
) -> Placement:
    """From what the command line says; the device is a GPU if there is one.

    Processes that torchrun started train together.
    """
    there = torch.cuda.is_available()
    if device == "cuda" and not there and on == "here":
        raise ValueError("device 'cuda' was asked for, but torch sees none; use --device cpu")
    if data is None and "RANKSCOPE_DATA" in os.environ:  # which other machines may not have
        data = Path(os.environ["RANKSCOPE_DATA"])
    if data is not None and not data.is_dir():
        raise ValueError(
            f"{data} is not a folder; give --data or RANKSCOPE_DATA the one that has the data sets"
        )
    machine = Machine(device or ("cuda" if there else "cpu"), data and data.absolute())
    if torchrun.in_group():
        return _together(machine, on)
    return Placement(machine, _executor(machine, on))


def _together(machine: Machine, on: On) -> Placement:
    if on == "ray":
        raise ValueError("torchrun's processes train together here; use either it or --on ray")
    machine = replace(machine, device=torchrun.own_device(machine.device))
    if torchrun.leads():
        train = partial(torchrun.execute, machine=machine)
        return Placement(machine, partial(trainings_first, train))
    return Placement(machine, follow=partial(torchrun.follow, machine))


def _executor(machine: Machine, on: On) -> Execute:
    if on == "ray":
        from rankscope.lab.running import ray  # an extra that few have

        share = GPU_SHARE if machine.device == "cuda" else 0.0
        return partial(ray.execute, gpus_per_run=share)
    if machine.device == "cuda":
        return partial(trainings_first, threads.execute)
    return processes.execute


def trainings_first(
    train: Execute, runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher
) -> list[Ended]:
    """Trainings as `train` executes them; then what does not train, in processes of its own."""
    runs = list(runs)
    trainings = [run for run in runs if isinstance(run.run, TrainingRun)]
    others = [run for run in runs if not isinstance(run.run, TrainingRun)]
    ended = train(trainings, jobs=jobs, watcher=watcher)
    return [*ended, *processes.execute(others, jobs=jobs, watcher=watcher)]


def placed(experiment: Experiment, machine: Machine) -> Experiment:
    """The experiment with every training at `machine`, which is no part of a run's identity."""
    runs = {
        key: replace(run, machine=machine) if isinstance(run, TrainingRun) else run
        for key, run in experiment.runs.items()
    }
    return replace(experiment, runs=runs)
