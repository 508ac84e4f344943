"""Functions that see a run after each snapshot: loggers, gates, a function of your own."""

import queue
from collections.abc import Callable, Sequence
from contextvars import Context
from pathlib import Path

import xarray as xr

from rankscope import store
from rankscope.tracker.worker import Worker

# A function of the run so far; its last step is the snapshot that was just committed.
Sink = Callable[[xr.Dataset], object]

# Seconds for which a tracker that closes waits for its sinks.
PATIENCE = 60.0


class Sinks:
    """Calls sinks after each commit, on a thread of their own, beside training and measuring.

    A sink that raises is called again at the next snapshot; its first failure is reported.
    """

    def __init__(self, path: Path, sinks: Sink | Sequence[Sink]) -> None:
        self._path = path
        self._sinks = (sinks,) if callable(sinks) else tuple(sinks)
        self._worker: Worker | None = None  # until there is something to see
        self._hangs = False
        self._failed: set[int] = set()
        self._unreported: queue.SimpleQueue[str] = queue.SimpleQueue()

    def committed(self, step: int, context: Context) -> None:
        """Let every sink see the run up to the snapshot of `step`.

        context: that of the training, in which loggers keep their active run.
        """
        if self._sinks:
            self._worker = self._worker or Worker()
            self._worker.submit(lambda: context.run(self._call, step))

    def _call(self, step: int) -> None:
        for position, sink in enumerate(self._sinks):
            try:
                sink(store.open(self._path).sel(step=slice(step)))
            except Exception as failure:
                if position not in self._failed:
                    self._failed.add(position)
                    self._unreported.put(
                        f"rankscope, {self._path}: the sink {_name(sink)} failed at step {step} "
                        f"and training goes on: {type(failure).__name__}: {failure}"
                    )

    def drain(self) -> None:
        """Wait until the sinks have seen every snapshot, or for a minute, once."""
        if self._worker is None or self._hangs:
            return
        self._hangs = not self._worker.drain(timeout=PATIENCE)
        if self._hangs:
            self._unreported.put(
                f"rankscope, {self._path}: a sink has not returned for {PATIENCE:g} seconds; "
                "it may miss the last snapshots, which the run holds"
            )

    def new_failures(self) -> list[str]:
        """Return a warning for each trouble that has not been reported."""
        return [self._unreported.get() for _ in range(self._unreported.qsize())]

    def close(self) -> None:
        """End the thread once it is done; a sink that hangs is left behind."""
        self.drain()
        if self._worker is not None and not self._hangs:
            self._worker.close()


def _name(sink: Sink) -> str:
    return getattr(sink, "__name__", type(sink).__name__)
