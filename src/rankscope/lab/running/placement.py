"""Choice of a machine for trainings and of a way to execute runs."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from rankscope.extras import needed_by
from rankscope.lab.experiment import Experiment
from rankscope.lab.running import processes, threads, torchrun
from rankscope.lab.running.processes import Ended, Watcher
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun

Device = Literal["cpu", "cuda"]
On = Literal["here", "ray"]
Execute = Callable[..., list[Ended]]  # of the runs, `jobs` and `watcher`

GPU_SHARE = 0.2  # of a GPU for each run on a cluster; five runs use one better than one does


@dataclass(frozen=True)
class Placement:
    """The machine of trainings and the function that executes runs; by default on this CPU.

    follow: called instead in a process that only takes part in what another one executes; returns
        True on success.
    """

    machine: Machine = Machine()  # noqa: RUF009
    execute: Execute = processes.execute
    follow: Callable[[], bool] | None = None


def choose_placement(
    *, device: Device | None = None, data: Path | None = None, on: On = "here"
) -> Placement:
    """Return the placement that the command line asks for; the default device is a GPU, if any.

    Processes that torchrun started train together.
    """
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu and on == "here":
        raise ValueError("device 'cuda' was asked for, but torch sees none; use --device cpu")
    if data is None and "RANKSCOPE_DATA" in os.environ:  # other machines may lack the variable
        data = Path(os.environ["RANKSCOPE_DATA"])
    if data is not None and not data.is_dir():
        raise ValueError(
            f"{data} is not a folder; give --data or RANKSCOPE_DATA the one that has the data sets"
        )
    machine = Machine(device or ("cuda" if has_gpu else "cpu"), data and data.absolute())
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
    return Placement(machine, follow=partial(torchrun.follow_and_exit, machine))


def _executor(machine: Machine, on: On) -> Execute:
    if on == "ray":
        with needed_by("ray as the place to run"):
            from rankscope.lab.running import ray

        share = GPU_SHARE if machine.device == "cuda" else 0.0
        return partial(ray.execute, gpus_per_run=share)
    if machine.device == "cuda":
        return partial(trainings_first, threads.execute)
    return processes.execute


def trainings_first(
    train: Execute, runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher
) -> list[Ended]:
    """Execute trainings by `train`, then all other runs in processes."""
    runs = list(runs)
    trainings = [run for run in runs if isinstance(run.run, TrainingRun)]
    others = [run for run in runs if not isinstance(run.run, TrainingRun)]
    ended = train(trainings, jobs=jobs, watcher=watcher)
    return [*ended, *processes.execute(others, jobs=jobs, watcher=watcher)]


def placed(experiment: Experiment, machine: Machine) -> Experiment:
    """Return the experiment with every training on `machine`, which changes no identity."""
    runs = {
        key: replace(run, machine=machine) if isinstance(run, TrainingRun) else run
        for key, run in experiment.runs.items()
    }
    return replace(experiment, runs=runs)
