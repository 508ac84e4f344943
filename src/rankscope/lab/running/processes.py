"""Execution of runs: one after another in this process, or several at once in other processes.

A run that raises, or whose process dies, has failed; the others go on. Processes are spawned, since
torch's threads do not survive a fork. Each uses one thread.
"""

import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol, runtime_checkable

from rankscope.environment import environment
from rankscope.lab.running.run_key import Progress
from rankscope.lab.running.stored_run import StoredRun
from rankscope.tracker.defaults import cores

# What a child inherits and libraries read.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
PROGRESS_SECONDS = 0.1  # between two messages of a process


@dataclass(frozen=True)
class Ended:
    """The end of a run; `failure` is a sentence, or None if the run is whole."""

    title: str
    seconds: float
    failure: str | None = None


class Step(NamedTuple):
    """The finished fraction of a run, and a short note."""

    fraction: float
    note: str


@runtime_checkable
class Watcher(Protocol):
    """A receiver of progress, such as a progress bar."""

    def started(self, title: str) -> None: ...
    def progressed(self, title: str, fraction: float, note: str = "") -> None: ...
    def ended(self, ended: Ended) -> None: ...


def execute(runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher) -> list[Ended]:
    """Execute `runs`, `jobs` at a time, by default one per core; one at a time in this process."""
    runs, jobs = list(runs), jobs or cores()
    if min(jobs, len(runs)) <= 1:
        return [_execute_here(run, watcher) for run in runs]
    return list(_execute_in_processes(deque(runs), jobs=min(jobs, len(runs)), watcher=watcher))


def attempt(stored: StoredRun, progress: Progress) -> Ended:
    """Execute one run; if it raises, write the failure beside its store."""
    start = time.perf_counter()
    try:
        provenance = stored.begin()
        if provenance is not None:
            stored.run.execute(stored.path, seed=stored.seed, progress=progress)
            stored.finish(provenance, seconds=time.perf_counter() - start)
    except Exception as error:
        with suppress(OSError):  # what failed may be the disk
            stored.fail(sentence(error), traceback.format_exc())
        return Ended(stored.title, time.perf_counter() - start, sentence(error))
    return Ended(stored.title, time.perf_counter() - start)


def sentence(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _execute_here(stored: StoredRun, watcher: Watcher) -> Ended:
    watcher.started(stored.title)
    ended = attempt(stored, partial(watcher.progressed, stored.title))
    watcher.ended(ended)
    return ended


@dataclass(frozen=True)
class Worker:
    """A process that executes the runs it receives; it sends `Step`s, then an `Ended`."""

    process: BaseProcess
    connection: Connection

    @classmethod
    def start(cls) -> "Worker":
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        # Not a daemon, since daemons may not start the process in which a run may measure.
        process = context.Process(target=_serve, args=(theirs,))
        with environment(ONE_THREAD), _ctrl_c_blocked():
            process.start()
        theirs.close()  # then the pipe ends when the process does
        return cls(process, ours)

    def end(self, *, at_once: bool) -> None:
        """Terminate the process, or close the pipe, after which it ends by itself."""
        if at_once:
            self.process.terminate()
        self.connection.close()
        self.process.join()


def _execute_in_processes(
    waiting: deque[StoredRun], *, jobs: int, watcher: Watcher
) -> Iterator[Ended]:
    workers: list[Worker] = []
    busy: dict[Connection, tuple[Worker, StoredRun]] = {}

    def send_next(worker: Worker | None = None) -> None:
        if worker is None or not worker.process.is_alive():
            worker = Worker.start()
            workers.append(worker)
        stored = waiting.popleft()
        busy[worker.connection] = worker, stored
        watcher.started(stored.title)
        worker.connection.send(stored)

    try:
        for _ in range(jobs):
            send_next()
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker, stored = busy[connection]
                message = _received(worker, stored)
                if not isinstance(message, Ended):
                    watcher.progressed(stored.title, *message)
                    continue
                del busy[connection]
                watcher.ended(message)
                yield message
                if waiting:
                    send_next(worker)
    finally:
        for worker in workers:
            worker.end(at_once=worker.connection in busy)


def _received(worker: Worker, stored: StoredRun) -> Step | Ended:
    """Receive the next message; if the process died, record the failure of its run."""
    try:
        message: Step | Ended = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        failure = (
            f"its process ended with exit code {worker.process.exitcode}"
            " (-9 is often a lack of memory: try fewer --jobs)"
        )
        with suppress(OSError):
            stored.fail(failure)
        return Ended(stored.title, 0.0, failure)
    return message


def _serve(connection: Connection) -> None:
    """Execute runs in a worker process until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            stored = connection.recv()
        except EOFError:
            return
        progress = throttled(partial(_send, connection), seconds=PROGRESS_SECONDS)
        connection.send(attempt(stored, progress))


def _send(connection: Connection, step: Step) -> None:
    """Send progress to the parent; if it is gone, end this process."""
    try:
        connection.send(step)
    except BrokenPipeError:  # an Exception would count as a failure of the run
        sys.exit(1)


def throttled(send: Callable[[Step], None], *, seconds: float) -> Progress:
    """Return a function that calls `send` at most once in so many seconds."""
    last = -seconds

    def progress(fraction: float | int, note: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            send(Step(float(fraction), note))

    return progress


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Block Ctrl-C, which a child inherits, also while it imports; the parent gets it later.

    Ctrl-C reaches every process of a terminal. The parent alone decides how the others end.
    """
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
