"""Handover of copies, rows of scalars and notes from the training thread to the worker."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import copy_context
from typing import Any

from rankscope.tracker.budget import Budget
from rankscope.tracker.buffers import Buffer, BufferPool, Handoff, Number, RowBuffer
from rankscope.tracker.contributor import Contributor
from rankscope.tracker.cost import Cost
from rankscope.tracker.recorder import Recorder
from rankscope.tracker.sinks import Sinks
from rankscope.tracker.worker import Worker


class Handover:
    """Queues the recorder's work for the worker of a tracker."""

    Job = Callable[[Recorder | Contributor], None]

    def __init__(
        self,
        worker: Worker,
        recorder: Recorder | Contributor,
        pool: BufferPool,
        *,
        budget: Budget | None,
        sinks: Sinks,
    ) -> None:
        self.worker = worker
        self._recorder = recorder
        self._pool = pool
        self._budget = budget
        self._sinks = sinks
        self._reserved: Buffer | None = None
        self._waited = 0.0  # for the reserved buffer
        self._gaps: dict[str, list[int]] = {"skipped": [], "left_out": []}

    @property
    def cost(self) -> Cost:
        """Cost of the snapshots that were recorded here."""
        return self._recorder.cost

    def submit(
        self,
        job: Callable[[Recorder | Contributor], None],
        *,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Let the worker run `job`, and `after` whatever becomes of it."""
        recorder = self._recorder
        self.worker.submit(lambda: job(recorder), after=after)

    def reserve(self, *, patience: float) -> bool:
        """Wait for a free buffer and keep it for the next snapshot; return whether there is one."""
        began = time.perf_counter()
        if self._reserved is None:
            self._reserved = self._pool.take(timeout=patience)
        self._waited += time.perf_counter() - began
        return self._reserved is not None

    def free_buffer(self, *, block: bool) -> tuple[Buffer | None, float]:
        """Return a free buffer, None if there is none, and the seconds waited for it."""
        began = time.perf_counter() - self._waited
        buffer, self._reserved, self._waited = self._reserved, None, 0.0
        while buffer is None and self.worker.alive:
            buffer = self._pool.take(timeout=0.2 if block else 0.0)
            if not block:
                break
        return buffer, time.perf_counter() - began

    def record(
        self,
        step: int,
        buffer: Buffer,
        numbers: Mapping[str, Number],
        *,
        wait_seconds: float,
        complete: bool,
        collected: Mapping[str, Any],
    ) -> None:
        """Let the worker measure a filled buffer and commit it as the snapshot of `step`.

        collected: what gauges have seen in the window of the step, by name.
        """
        self._send_gaps(taken=step)
        handoff, pool = Handoff({name: [number] for name, number in numbers.items()}), self._pool
        budget, sinks, context = self._budget, self._sinks, copy_context()

        def record(recorder: Recorder | Contributor) -> None:
            with nullcontext() if budget is None else budget.measuring():
                recorder.record(
                    step,
                    buffer,
                    handoff,
                    wait_seconds=wait_seconds,
                    complete=complete,
                    collected=collected,
                )
            sinks.committed(step, context)

        if budget is not None:
            budget.submitted()
        self.submit(record, after=lambda: pool.give_back(buffer))

    def send_rows(self, rows: RowBuffer) -> None:
        """Let the worker commit the scalars of every step that have gathered."""
        if len(rows):
            steps, columns = rows.take()
            self.submit(lambda recorder: recorder.record_rows(steps, columns))

    def leave_out(self, step: int) -> None:
        """Note a step that was due and is not taken; the run lists it from the next commit on."""
        self._gaps["skipped" if self._budget is None else "left_out"].append(step)

    def finish(self, rows: RowBuffer) -> None:
        """Send all that has gathered, and wait until it is committed and the sinks have seen it."""
        self.send_rows(rows)
        self._send_gaps()
        self.worker.drain()
        self._sinks.drain()

    def note_seconds(self, wall: float) -> None:
        """Let the worker store how long the run took, and what tracking has cost it."""
        seconds = {"wall_seconds": wall}
        if self._budget is not None:
            seconds["tracking_seconds"] = self._budget.seconds
        self.submit(lambda recorder: recorder.note(seconds))
        self.submit(lambda recorder: recorder.note_memory())

    def new_failures(self) -> list[str]:
        """Return a warning for each trouble of a matrix or a sink that has not been reported."""
        return [*filter(None, [self._recorder.new_failures()]), *self._sinks.new_failures()]

    def close(self) -> None:
        """Commit what is waiting and close the run."""
        self.worker.drain()
        self.worker.close()
        self._recorder.close()
        self._sinks.close()

    def _send_gaps(self, *, taken: int | None = None) -> None:
        gaps = {
            name: [step for step in steps if step != taken]
            for name, steps in self._gaps.items()
            if steps
        }
        if gaps:
            self._gaps = {name: [] for name in self._gaps}
            self.submit(lambda recorder: recorder.note(gaps))
