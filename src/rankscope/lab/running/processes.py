"""Running what is not there yet: one after another here, or several at once in processes.

A run that raises, or whose process dies, is a failed run; the others go on. Processes are spawned,
not forked, since torch's threads do not survive a fork, and keep to one thread each.
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

from rankscope.lab.running.run import Progress
from rankscope.lab.running.stored_run import StoredRun
from rankscope.tracker.defaults import cores

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PROGRESS_EVERY = 0.1  # seconds between two messages of a process


@dataclass(frozen=True)
class Ended:
    """A run that was executed; `failure` is a sentence, or None if the run is whole."""

    title: str
    seconds: float
    failure: str | None = None


class Step(NamedTuple):
    """How far a run is."""

    fraction: float
    note: str


@runtime_checkable
class Watcher(Protocol):
    """Who is told how the runs go, such as a progress bar."""

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
    """Execute one run; what it raises is kept beside its store."""
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
    """What went wrong, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _execute_here(stored: StoredRun, watcher: Watcher) -> Ended:
    watcher.started(stored.title)
    ended = attempt(stored, partial(watcher.progressed, stored.title))
    watcher.ended(ended)
    return ended


@dataclass(frozen=True)
class Worker:
    """A process that executes the runs sent to it; it answers with `Step`s, then an `Ended`."""

    process: BaseProcess
    connection: Connection

    @classmethod
    def start(cls) -> "Worker":
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        # Not a daemon: a run may measure in a process of its own, which daemons may not have.
        process = context.Process(target=_serve, args=(theirs,))
        with _one_thread(), _deaf_to_ctrl_c():
            process.start()
        theirs.close()  # so that the pipe ends when the process does
        return cls(process, ours)

    def end(self, *, at_once: bool) -> None:
        """By force, or by closing the pipe, which tells it that no more runs come."""
        if at_once:
            self.process.terminate()
        self.connection.close()
        self.process.join()


def _execute_in_processes(
    waiting: deque[StoredRun], *, jobs: int, watcher: Watcher
) -> Iterator[Ended]:
    workers: list[Worker] = []
    working: dict[Connection, tuple[Worker, StoredRun]] = {}

    def employ(worker: Worker) -> None:
        stored = waiting.popleft()
        working[worker.connection] = worker, stored
        watcher.started(stored.title)
        worker.connection.send(stored)

    def engage() -> None:
        workers.append(Worker.start())
        employ(workers[-1])

    try:
        for _ in range(jobs):
            engage()
        while working:
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                worker, stored = working[connection]
                answer = _answer(worker, stored)
                if not isinstance(answer, Ended):
                    watcher.progressed(stored.title, *answer)
                    continue
                del working[connection]
                watcher.ended(answer)
                yield answer
                if waiting and worker.process.is_alive():
                    employ(worker)
                elif waiting:
                    engage()
    finally:
        for worker in workers:
            worker.end(at_once=worker.connection in working)


def _answer(worker: Worker, stored: StoredRun) -> Step | Ended:
    """The next message; of a process that died, the failure of its run."""
    try:
        answer: Step | Ended = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        failure = (
            f"its process ended with exit code {worker.process.exitcode}"
            " (-9 is often a lack of memory: try fewer --jobs)"
        )
        with suppress(OSError):
            stored.fail(failure)
        return Ended(stored.title, 0.0, failure)
    return answer


def _serve(connection: Connection) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            stored = connection.recv()
        except EOFError:
            return
        connection.send(attempt(stored, seldom(partial(_tell, connection), every=PROGRESS_EVERY)))


def _tell(connection: Connection, step: Step) -> None:
    """Without a parent to tell, the process ends."""
    try:
        connection.send(step)
    except BrokenPipeError:  # not a failure of the run, which an Exception would be
        sys.exit(1)


def seldom(send: Callable[[Step], None], *, every: float) -> Progress:
    """`send`, at most once in `every` seconds."""
    last = -every

    def progress(fraction: float | int, note: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            send(Step(float(fraction), note))

    return progress


@contextmanager
def _one_thread() -> Iterator[None]:
    """The environment that a child takes over; libraries read it when they are imported."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A child takes over what is blocked, also while it imports; the parent hears it afterwards.

    Ctrl-C reaches every process of a terminal, but it is the parent who ends the others.
    """
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
