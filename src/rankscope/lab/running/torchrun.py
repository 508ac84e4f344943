"""Running what is not there yet by several processes together, which `torchrun` starts.

They train one run after the other. The first process, of rank 0, chooses the runs, writes, judges
and talks; the others follow it. What fails while a run is set up is heard by all, and the next run
begins. What fails later ends the process where it happens, since the others wait for it and do not
hear: torchrun ends them, and the same command goes on from the run's checkpoint.
"""

import atexit
import os
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn

import torch
import torch.distributed as dist

from rankscope.lab.running.processes import Ended, Watcher, sentence
from rankscope.lab.running.run import Progress
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training.distributed import SharedFailure, joined
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.task import Machine


def in_group() -> bool:
    """Whether torchrun started this process as one of several."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


def leads() -> bool:
    """Whether this process is the first of them."""
    return os.environ["RANK"] == "0"


def own_device(device: str) -> str:
    """A GPU for each process on a machine, or the CPU for all."""
    if device == "cpu":
        return device
    number = int(os.environ["LOCAL_RANK"])
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"process {number} of this machine has no GPU of its own, since torch sees "
            f"{torch.cuda.device_count()}; start as many processes with --nproc-per-node"
        )
    return f"cuda:{number}"


def execute(
    runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher, machine: Machine
) -> list[Ended]:
    """Execute trainings in the first process, each with all the others: `jobs` changes nothing.

    machine: of this process.
    """
    with joined(torch.device(machine.device)):
        ended = [_lead(run, watcher) for run in runs]
        _tell(None)
    return ended


def follow(machine: Machine) -> bool:
    """Take part, in another process, in what the first one executes, until it has no more."""
    with joined(torch.device(machine.device)):
        while (stored := _told()) is not None:
            _take_part(stored, machine)
    return True


def _lead(stored: StoredRun, watcher: Watcher) -> Ended:
    watcher.started(stored.title)
    began = time.perf_counter()
    try:
        failure, broken = _attempt(stored, partial(watcher.progressed, stored.title)), False
    except Exception as error:
        failure, broken = _keep(stored, error), True
    ended = Ended(stored.title, time.perf_counter() - began, failure)
    watcher.ended(ended)
    if broken:
        # What is under way with the others must not hold up the end.
        atexit.register(_end_at_once, 1)
        raise SystemExit(1)
    return ended


def _attempt(stored: StoredRun, progress: Progress) -> str | None:
    """Execute one run with the others.

    Returns what went wrong while they did not wait for this process; the rest is raised.
    """
    began = time.perf_counter()
    try:
        came_from = stored.begin()
    except Exception as error:
        return _keep(stored, error)
    if came_from is None:
        return None
    stored.failure_file.unlink(missing_ok=True)  # whoever fails first writes it
    _tell(stored)
    try:
        stored.run.execute(stored.path, seed=stored.seed, progress=progress)
    except SharedFailure as failure:
        with suppress(OSError):
            stored.fail(str(failure), failure.trace)
        return str(failure)
    try:
        stored.finish(came_from, seconds=time.perf_counter() - began)
    except Exception as error:
        return _keep(stored, error)
    return None


def _take_part(stored: StoredRun, machine: Machine) -> None:
    assert isinstance(stored.run, TrainingRun)
    run = replace(stored.run, machine=machine)
    try:
        run.execute(stored.path, seed=stored.seed, progress=_silent)
    except SharedFailure:
        pass  # which the first process keeps
    except KeyboardInterrupt:
        _end_at_once(130)
    except BaseException as error:
        if stored.failure is None:
            said = f"{_keep(stored, error)} (process {dist.get_rank()})"
            print(f"failed {stored.title}: {said}", file=sys.stderr)
        _end_at_once(1)


def _keep(stored: StoredRun, error: BaseException) -> str:
    """The failure beside the store, unless another process, of which this one heard, was first."""
    with suppress(OSError):  # what failed may be the disk
        if stored.failure is None:
            stored.fail(sentence(error), "".join(traceback.format_exception(error)))
        return stored.failure or sentence(error)
    return sentence(error)


def _tell(stored: StoredRun | None) -> None:
    """The next run, to those who follow; None when there is no more."""
    sent = stored and replace(stored, path=stored.path.absolute())
    dist.broadcast_object_list([sent], src=0)


def _told() -> StoredRun | None:
    heard: list[StoredRun | None] = [None]
    dist.broadcast_object_list(heard, src=0)
    return heard[0]


def _end_at_once(code: int) -> NoReturn:
    """Without what an interpreter tidies up, which waits for collectives under way."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _silent(fraction: float, note: str = "") -> None:
    pass
