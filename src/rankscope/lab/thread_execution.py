"""Runs side by side on one GPU: a thread and a stream for each, in this process.

Processes would take turns on the GPU; streams of one process share it. The threads spend their time
replaying graphs, for which they hardly need the interpreter.
"""

import queue
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rankscope.lab.execution import Ended, Step, Watcher, attempt
from rankscope.lab.stored_run import StoredRun

Message = tuple[str, Step | Ended | None]


JOBS = 5  # five VGG-16s of the paper's size fill an H200


def execute(runs: Iterable[StoredRun], *, jobs: int | None, watcher: Watcher) -> list[Ended]:
    """Execute `runs`, `jobs` at a time; the watcher hears of them in this thread."""
    runs = list(runs)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    ended: list[Ended] = []
    with ThreadPoolExecutor(max_workers=jobs or JOBS, thread_name_prefix="rankscope-run") as pool:
        futures = [pool.submit(_attempt, stored, messages) for stored in runs]
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
            # Threads cannot be ended from outside; those that have not begun are not begun.
            for future in futures:
                future.cancel()
            raise
    return ended


def _attempt(stored: StoredRun, messages: "queue.SimpleQueue[Message]") -> None:
    messages.put((stored.title, None))
    ended = attempt(stored, partial(_report, stored.title, messages))
    messages.put((stored.title, ended))


def _report(
    title: str, messages: "queue.SimpleQueue[Message]", fraction: float, note: str = ""
) -> None:
    messages.put((title, Step(float(fraction), note)))
