"""Execution of several runs at once on one GPU, in threads of this process.

Processes would take turns on the GPU; the streams of one process share it. The threads replay
graphs, for which they hardly need the interpreter.
"""

import queue
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from rankscope.lab.running.processes import Ended, Step, Watcher, attempt, sentence
from rankscope.lab.running.stored_run import StoredRun

Message = tuple[str, Step | Ended | None]

JOBS = 5  # convolutional networks of 15 million parameters fill an H200


def execute(runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher) -> list[Ended]:
    """Execute `runs`, `jobs` at a time; the watcher is called in this thread."""
    runs = list(runs)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    stop = threading.Event()
    ended: list[Ended] = []
    with ThreadPoolExecutor(max_workers=jobs or JOBS, thread_name_prefix="rankscope-run") as pool:
        futures = [pool.submit(_attempt, stored, messages, stop) for stored in runs]
        try:
            while len(ended) < len(runs):
                title, message = messages.get()
                if message is None:
                    watcher.started(title)
                elif isinstance(message, Ended):
                    ended.append(message)
                    watcher.ended(message)
                else:
                    watcher.progressed(title, *message)
        except BaseException:
            # Threads cannot be ended from outside: those that run stop when they report.
            stop.set()
            for future in futures:
                future.cancel()
            raise
    return ended


class Stopped(BaseException):
    """Ends a run without failure; an Exception would be recorded as one."""


def _attempt(
    stored: StoredRun, messages: "queue.SimpleQueue[Message]", stop: threading.Event
) -> None:
    def report(fraction: float, note: str = "") -> None:
        if stop.is_set():
            raise Stopped
        messages.put((stored.title, Step(float(fraction), note)))

    messages.put((stored.title, None))
    try:
        ended = attempt(stored, report)
    except BaseException as error:
        ended = Ended(stored.title, 0.0, sentence(error))
    messages.put((stored.title, ended))
