"""The thread that does the tracker's work beside training."""

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rankscope.spectra.workers import keep_to_one_core

Job = Callable[[], None]
Entry = tuple[Job, Job | None]


class Worker:
    """Runs jobs one after another on a thread of its own.

    After a job has failed, the rest are dropped and `failure` holds the exception. `drain` returns
    when no job is left or the thread is gone, so nobody waits for ever.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._jobs: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._unfinished = 0
        self._finished = threading.Condition()
        self._gate = threading.Lock()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="rankscope-tracker", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether jobs run: not after `close`, nor in a forked child, which has no thread."""
        return self._thread.is_alive() and os.getpid() == self._pid

    def submit(self, job: Job, *, after: Job | None = None) -> None:
        """Queue `job`; `after` runs when it has ended, failed or been dropped."""
        with self._finished:
            self._unfinished += 1
        self._jobs.put((job, after))

    def drain(self, *, timeout: float = math.inf) -> bool:
        """Wait until every submitted job has ended; False if that takes longer than `timeout`."""
        deadline = time.monotonic() + timeout
        with self._finished:
            while self._unfinished and self.alive and time.monotonic() < deadline:
                self._finished.wait(timeout=0.2)
            return not (self._unfinished and self.alive)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Run no job inside this context: wait for the running one, hold back the next."""
        with self._gate:
            yield

    def close(self) -> None:
        if not self.alive:
            return
        self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        keep_to_one_core()
        while (entry := self._jobs.get()) is not None:
            job, after = entry
            try:
                with self._gate:
                    if self.failure is None:
                        job()
            except BaseException as failure:  # a dead thread would leave training waiting for it
                self.failure = failure
            finally:
                if after is not None:
                    after()
                del entry, job, after  # while idle, nothing here may keep a tracker alive
                with self._finished:
                    self._unfinished -= 1
                    self._finished.notify_all()
