"""Execution of runs by several processes together, which `torchrun` starts.

They train one run after the other. The process of rank 0 leads: it chooses the runs, writes, judges
and prints. If setup fails, all processes skip to the next run. If training fails, the process ends
where it happens, and torchrun ends the others, which wait for it. The same command then resumes
from the checkpoint.
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
from rankscope.lab.running.run_key import Progress
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training.distributed import SharedFailure, joined
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun


def in_group() -> bool:
    """Whether torchrun started this process as one of several."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


def leads() -> bool:
    """Whether this process has rank 0."""
    return os.environ["RANK"] == "0"


def own_device(device: str) -> str:
    """Return this process's own GPU, or the CPU."""
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
    """Execute trainings in the leading process, one at a time with all others; ignore `jobs`."""
    with joined(torch.device(machine.device)):
        ended = [_lead(run, watcher) for run in runs]
        _broadcast(None)
    return ended


def follow(machine: Machine) -> bool:
    """Take part in what the leading process executes, until it has no more."""
    with joined(torch.device(machine.device)):
        while (stored := _broadcast(None)) is not None:
            _take_part(stored, machine)
    return True


def follow_and_exit(machine: Machine) -> NoReturn:
    """Take part until there is no more, then exit: nothing else is left for this process to do.

    Threads of a process group that has ended at times abort the interpreter's clean-up.
    """
    follow(machine)
    _end_at_once(0)


def _lead(stored: StoredRun, watcher: Watcher) -> Ended:
    watcher.started(stored.title)
    began = time.perf_counter()
    try:
        failure, broken = _attempt(stored, partial(watcher.progressed, stored.title)), False
    except Exception as error:
        failure, broken = _record(stored, error), True
    ended = Ended(stored.title, time.perf_counter() - began, failure)
    watcher.ended(ended)
    if broken:
        # Pending collectives must not delay the end.
        atexit.register(_end_at_once, 1)
        raise SystemExit(1)
    return ended


def _attempt(stored: StoredRun, progress: Progress) -> str | None:
    """Execute one run with the others.

    Return a failure for which the others do not wait; raise any other.
    """
    began = time.perf_counter()
    try:
        provenance = stored.begin()
    except Exception as error:
        return _record(stored, error)
    if provenance is None:
        return None
    stored.failure_file.unlink(missing_ok=True)  # the process that fails first writes it
    _broadcast(stored)
    try:
        stored.run.execute(stored.path, seed=stored.seed, progress=progress)
    except SharedFailure as failure:
        with suppress(OSError):
            stored.fail(str(failure), failure.trace)
        return str(failure)
    try:
        stored.finish(provenance, seconds=time.perf_counter() - began)
    except Exception as error:
        return _record(stored, error)
    return None


def _take_part(stored: StoredRun, machine: Machine) -> None:
    assert isinstance(stored.run, TrainingRun)
    run = replace(stored.run, machine=machine)
    try:
        run.execute(stored.path, seed=stored.seed, progress=_silent)
    except SharedFailure:
        pass  # the leading process records it
    except KeyboardInterrupt:
        _end_at_once(130)
    except BaseException as error:
        if stored.failure is None:
            failure = f"{_record(stored, error)} (process {dist.get_rank()})"
            print(f"failed {stored.title}: {failure}", file=sys.stderr)
        _end_at_once(1)


def _record(stored: StoredRun, error: BaseException) -> str:
    """Write the failure beside the store, unless another process was first, and return it."""
    with suppress(OSError):  # what failed may be the disk
        if stored.failure is None:
            stored.fail(sentence(error), "".join(traceback.format_exception(error)))
        return stored.failure or sentence(error)
    return sentence(error)


def _broadcast(stored: StoredRun | None) -> StoredRun | None:
    """Return the leading process's run in all processes; None when there are no more."""
    message = [stored and replace(stored, path=stored.path.absolute())]
    dist.broadcast_object_list(message, src=0)
    return message[0]


def _end_at_once(code: int) -> NoReturn:
    """Exit without the interpreter's clean-up, which may wait for pending collectives."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _silent(fraction: float, note: str = "") -> None:
    pass
