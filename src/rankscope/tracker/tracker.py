"""Tracker: three lines in any training loop.

    with rankscope.Tracker(model, "runs/first") as tracker:
        for step, batch in enumerate(batches):
            ...
            tracker.observe(step, loss=loss)

docs/howto/track.md says what a tracker may do to somebody's training; the tests hold it to that.
"""

import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from rankscope.pairs import Pair
from rankscope.provenance import origin
from rankscope.tracker.budget import Budget, chosen_budget
from rankscope.tracker.buffers import Buffer, Handoff, RowBuffer
from rankscope.tracker.changes import ChangeReport
from rankscope.tracker.defaults import (
    MeasurerKind,
    measurer_kind,
    worker_threads,
)
from rankscope.tracker.distributed import (
    Meetings,
    Trouble,
    agreed,
    gathered,
    is_sharded,
    is_writer,
)
from rankscope.tracker.notices import Notices
from rankscope.tracker.probe import Probe
from rankscope.tracker.recorder import Recorder, RunOptions, open_run
from rankscope.tracker.reference import Reference, describe_reference, given_reference
from rankscope.tracker.scalars import Scalars
from rankscope.tracker.schedules import Schedule, as_schedule
from rankscope.tracker.setup import set_up
from rankscope.tracker.steps import StepCounter
from rankscope.tracker.worker import Worker

# Scalars of every step go to the worker when this many steps have gathered, or at a snapshot.
ROWS = 1024


class Tracker:
    """Measures every spectrum of `model` while it trains, and writes them to the run at `path`.

    What to measure:

    schedule: steps at which to take a snapshot: a schedule, n for every n steps, a list of steps,
        "log", "log:32" or "every:100". The default is log-spaced within a budget.
    budget: share of the run's time that scheduled snapshots may cost; due steps beyond it are left
        out. Step 0 and `snapshot` are always taken. The default, "auto", is 0.05 if no schedule is
        given, else None: no limit.
    pairs: pairs of matrices whose overlaps to measure. The default are those the model declares
        (`alignment_pairs()`), else those inside its attention and recurrent modules;
        `discover_pairs` finds all.
    reference: weights from which changes are measured: "init" (the first snapshot), a checkpoint
        file, a state dict, a model, or None.
    products: measure the products of attention heads and of LoRA pairs too.
    include, exclude: patterns on matrix names, as in `views`; products and default pairs follow.
    top: number of leading directions that enter an overlap.
    every_step: names of scalars to store at every step, not only at snapshots.
    probe: a function of the weights that is called at each snapshot, beside training: see `Probe`.

    Where to measure, beside training:

    when_full: what to do when snapshots come faster than they are measured: "block" or "skip".
    places: number of copies of the watched weights that may wait to be measured.
    device: device that decomposes. The default is the host, or the model's device if the shorter
        side of a matrix is above 1024.
    beside: decompose in a "thread" of this process or in a "process" of its own. The default is a
        process if a GPU trains and the host decomposes, else a thread.
    threads: number of cores that decompose. The default is one if the CPU trains, else a quarter of
        those this process may use.

    The run:

    resume: continue the run at `path` if there is one. Snapshots at or after the first step
        observed again are dropped.
    durable: wait for the disk at each commit, so that it survives a loss of power.
    strict: raise an exception instead of one warning when tracking fails.
    attrs: anything JSON can hold about the run (its declaration, its seed), stored with it.
    """

    failed: str | None = None  # why tracking has stopped
    _failure: BaseException | None = None
    _stopped = False
    _pauses = 0
    _last_due: int | None = None  # the same on all ranks
    _stored: int | None = None  # last step of a resumed run
    _meetings: Meetings | None = None  # if ranks gather shards together
    _budget: Budget | None = None
    _worker: Worker | None = None
    _recorder: Recorder | None = None

    def __init__(
        self,
        model: nn.Module,
        path: str | Path,
        *,
        schedule: Schedule | int | str | Iterable[int] | None = None,
        budget: float | Literal["auto"] | None = "auto",
        pairs: Sequence[Pair] | None = None,
        reference: Reference = "init",
        products: bool = True,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        top: int = 100,
        every_step: str | Sequence[str] = (),
        probe: Probe | None = None,
        when_full: Literal["block", "skip"] = "block",
        places: int = 2,
        device: torch.device | str | None = None,
        beside: MeasurerKind | None = None,
        threads: int | None = None,
        resume: bool = False,
        durable: bool = False,
        strict: bool = False,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        _check_choice("when_full", when_full, ("block", "skip"))
        _check_choice("beside", beside, (None, "thread", "process"))
        if min(places, top) < 1:
            raise ValueError(f"places and top must be at least 1, got {places} and {top}")
        self.path = Path(path).absolute()  # the working directory may change
        self._schedule = as_schedule(schedule)
        self._block = when_full == "block"
        self._strict = strict
        self._resuming = resume  # until the first step is seen
        self._began = time.perf_counter()
        self._notices = Notices(self.path, strict=strict)
        self._steps = StepCounter(self._notices)
        self._gaps: dict[str, list[int]] = {"skipped": [], "left_out": []}

        setup = set_up(
            model,
            include=include,
            exclude=exclude,
            pairs=pairs,
            products=products,
            top=top,
            probe=probe,
            device=device,
            beside=beside,
            notices=self._notices,
        )
        self.coverage, self.plan = setup.chosen.coverage, setup.plan
        self._home, self._device, self._watch = setup.home, setup.device, setup.watch
        self._changes = ChangeReport(self._watch, self.plan, self._notices)
        if is_sharded(self._watch.tensors()):
            self._meetings = Meetings()
        self._scalars = Scalars(self.plan, every_step, self._notices)
        self._rows = RowBuffer(self._scalars.every_step)
        options = RunOptions(
            every_step=self._rows.names,
            probe=probe,
            buffers=places,
            measurer=beside or measurer_kind(self._home, self._device),
            threads=threads or worker_threads(self._home),
            resume=resume,
            durable=durable,
        )
        self._budget = chosen_budget(
            budget,
            schedule,
            self.plan,
            home=self._home,
            measurer=options.measurer,
            threads=options.threads,
        )
        if options.measurer == "process":
            self._watch.keep_dtypes()
        self._open(
            options,
            reference,
            {
                **(attrs or {}),
                "schedule": repr(self._schedule),
                **({} if self._budget is None else {"budget": self._budget.share}),
                "reference": describe_reference(reference),
                "coverage": str(self.coverage),
                "manifest": setup.chosen.manifest.to_json(),
            },
        )

    def _open(self, options: RunOptions, reference: Reference, attrs: Mapping[str, Any]) -> None:
        """Open the run in the process that writes it; all ranks learn if that fails."""
        if not self._all_here("made a Tracker; make it"):
            return
        # On every rank: a sharded reference is gathered by all of them.
        weights = given_reference(reference, self.plan)
        if is_writer():
            try:
                self._recorder, self._pool = open_run(
                    self.path,
                    self.plan,
                    self._watch.tensors(),
                    options,
                    reference=weights,
                    from_init=reference == "init",
                    attrs={**origin(self._home), **attrs},
                )
            except ValueError as mistake:
                self.failed, self._failure = str(mistake), mistake  # raised when all ranks know it
            except Exception as failure:  # a disk in trouble must not end training
                self._fail(failure)
            else:
                self._worker = Worker()
                self._finalize = weakref.finalize(
                    self, _finish, os.getpid(), self._worker, self._recorder
                )
        last = None if self._recorder is None else self._recorder.last_step
        if self._meetings is not None:
            (next_step,) = self._agree(0 if last is None else last + 1)
            last = next_step - 1 if next_step else None
        if isinstance(self._failure, ValueError):
            raise self._failure
        self._stored = last

    @property
    def committed(self) -> int | None:
        """The last step whose snapshot is safely on disk; None before the first."""
        return self._recorder.committed if self._recorder is not None else None

    def observe(self, step: int | None = None, **scalars: Any) -> None:
        """Take a snapshot if one is due at `step`; else return without touching a tensor.

        Call it once per step. Without `step`, steps are counted: from 0, or on from the last one of
        a resumed run. Scalars are stored at snapshots, those of `every_step` always.
        """
        if self._stopped or self._pauses:
            return
        try:
            self._observe(step, scalars)
        except Exception as failure:
            self._fail(failure)

    def snapshot(self, step: int | None = None, **scalars: Any) -> None:
        """Take a snapshot whatever the schedule says, for instance at the end of training.

        Without `step`, it is that of the weights after the last step observed. This waits for a
        free buffer. It does nothing if a snapshot of `step` was taken or skipped; a later `observe`
        of the same step takes none. Steps must increase.
        """
        if self._stopped and self.failed is None:  # a failure has had its warning
            step_named = "" if step is None else f" of step {step}"
            warnings.warn(
                f"{self.path} is closed, so no snapshot{step_named} is taken; call it inside "
                "the tracker's with block",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._stopped or self._pauses:
            return
        try:
            self._snapshot(step, scalars)
        except Exception as failure:
            self._fail(failure)

    def _observe(self, step: int | None, scalars: Mapping[str, Any]) -> None:
        self._begin(step)
        number = self._steps.observe(step)
        if number is None:
            return
        if self._rows.names:
            self._rows.add(number, self._scalars.usable_at_every_step(scalars))
            if len(self._rows) >= ROWS:
                self._send_rows()
        if self._schedule(number) and (self._last_due is None or number > self._last_due):
            self._take(number, scalars, asked=False)

    def _snapshot(self, step: int | None, scalars: Mapping[str, Any]) -> None:
        self._begin(step)
        number = self._steps.snapshot(step, after=self._last_due)
        if number != self._last_due:
            self._take(number, scalars, asked=True)

    def _begin(self, step: int | None) -> None:
        """Drop what a resumed run has from its first step on: it is trained anew."""
        if self._budget is not None:
            self._budget.start()
        if not self._resuming:
            return
        self._resuming = False
        if step is None:
            self._steps.observed = self._stored
        else:
            self._submit(lambda recorder: recorder.forget_from(step))

    def _take(self, step: int, scalars: Mapping[str, Any], *, asked: bool) -> None:
        self._report_worker()
        wanted = asked or self._affords(step)
        if self._meetings is not None:
            wanted = self._all_want(step, wanted)
        if self._stopped or (self._worker is None and self._meetings is None):
            return
        if not wanted:
            self._gaps["left_out"].append(step)
            return
        self._last_due = step
        with nullcontext() if self._budget is None else self._budget.copying():
            # A budget leaves out a step rather than let training wait.
            self._copy(step, scalars, block=asked or (self._block and self._budget is None))

    def _affords(self, step: int) -> bool:
        """Return whether the budget allows a due step. The first of a run is always taken."""
        if self._budget is None or self._recorder is None:
            return True
        affordable = self._budget.affords_another()
        first = self._last_due is None and self._recorder.committed is None
        return affordable or step == 0 or first

    def _copy(self, step: int, scalars: Mapping[str, Any], *, block: bool) -> None:
        tensors = self._changes.tensors()
        complete = tensors.keys() >= self._watch.names
        if news := self._changes.news(step):
            self._submit(lambda recorder: recorder.note({"changed_tensors": news}))
        began = time.perf_counter()
        buffer = self._free_buffer(block=block)
        waited = time.perf_counter() - began
        if buffer is None and self._meetings is None:
            self._add_gap(step)
            return
        numbers = self._scalars.usable(scalars)
        whole = gathered(tensors)
        try:
            if buffer is not None:
                buffer.fill(whole, device=self._device)
        finally:
            if self._meetings is not None:
                for _ in whole:
                    pass  # gathering is collective: a rank that copies nothing still takes part
        if buffer is None:
            self._add_gap(step)
            return
        self._send_rows()
        self._send_gaps(taken=step)
        handoff, pool = Handoff({name: [number] for name, number in numbers.items()}), self._pool
        budget = self._budget

        def record(recorder: Recorder) -> None:
            with nullcontext() if budget is None else budget.measuring():
                recorder.record(step, buffer, handoff, wait_seconds=waited, complete=complete)

        if budget is not None:
            budget.submitted()
        self._submit(record, after=lambda: pool.give_back(buffer))

    def _free_buffer(self, *, block: bool) -> Buffer | None:
        """Return a free buffer; None in a process that does not write, or if none is free."""
        buffer = None
        while buffer is None and self._worker is not None and self._worker.alive:
            buffer = self._pool.take(timeout=0.2 if block else 0.0)
            if not block:
                break
        return buffer

    def _send_rows(self) -> None:
        if len(self._rows):
            steps, columns = self._rows.take()
            self._submit(lambda recorder: recorder.record_rows(steps, columns))

    def _add_gap(self, step: int) -> None:
        if self._worker is not None:
            self._gaps["skipped" if self._budget is None else "left_out"].append(step)

    def _send_gaps(self, *, taken: int | None = None) -> None:
        """List the steps that were due and not taken in the run's attributes."""
        gaps = {
            name: [step for step in steps if step != taken]
            for name, steps in self._gaps.items()
            if steps
        }
        if gaps:
            self._gaps = {name: [] for name in self._gaps}
            self._submit(lambda recorder: recorder.note(gaps))

    def _submit(
        self, job: Callable[[Recorder], None], *, after: Callable[[], None] | None = None
    ) -> None:
        recorder = self._recorder
        if self._worker is not None and recorder is not None:
            self._worker.submit(lambda: job(recorder), after=after)

    def flush(self) -> None:
        """Wait until everything observed so far is committed, or the tracker has failed."""
        if self._pauses:
            raise ValueError("flush and close wait for the worker, which rests inside paused()")
        self._send_rows()
        self._send_gaps()
        if self._worker is None or self._stopped:
            return
        self._worker.drain()
        self._report_worker()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Observe nothing inside this context, and let the worker rest.

        Capture CUDA graphs inside it: no other thread may disturb a capture.
        """
        rest = self._worker is not None and not self._pauses
        self._pauses += 1
        try:
            with self._worker.held() if self._worker is not None and rest else nullcontext():
                yield
        finally:
            self._pauses -= 1

    def close(self) -> None:
        """Commit what is waiting and close the run; safe to call twice."""
        if self._worker is None or self._recorder is None or not self._worker.alive:
            self._stopped = self._stopped or (self._worker is None and not self._pauses)
            return
        wall = time.perf_counter() - self._began
        try:
            self.flush()
        finally:
            if not self._pauses:
                seconds = {"wall_seconds": wall}
                if self._budget is not None:
                    seconds["tracking_seconds"] = self._budget.seconds
                self._submit(lambda recorder: recorder.note(seconds))
                self._finalize()
                self._stopped = True

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _report_worker(self) -> None:
        """Warn of the worker's troubles, in the training thread, where warnings belong."""
        if self._recorder is not None and (message := self._recorder.new_failures()):
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        if self._worker is not None and self._worker.failure is not None:
            self._fail(self._worker.failure)

    def _fail(self, failure: BaseException) -> None:
        """Warn once and let training go on; raise instead if `strict`."""
        if self.failed is None:
            self.failed = f"{type(failure).__name__}: {failure}"
            self._failure = failure
            if not self._strict:
                message = (
                    f"rankscope stopped tracking {self.path} and training goes on: {self.failed}"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=4)
        # Ranks that gather shards stop together, at the next snapshot; others stop at once.
        self._stopped = self._stopped or self._meetings is None
        if self._strict and self._stopped:
            raise failure

    def _all_here(self, deed: str) -> bool:
        """Return whether the trackers of all ranks have come here, if they gather shards."""
        absent = [] if self._meetings is None else self._meetings.absent()
        if self._meetings is None or not absent:
            return True
        self._stopped = True
        self._fail(
            RuntimeError(
                "all ranks gather a sharded model together, and after "
                f"{self._meetings.patience:g} seconds rank {absent[0]} had not {deed} on every "
                "rank, one of which writes"
            )
        )
        return False

    def _all_want(self, step: int, wanted: bool) -> bool:
        """Return whether the writer wants a snapshot, and stop if a rank is at another step."""
        if not self._all_here(f"come to the snapshot of step {step}; call observe and snapshot"):
            return False
        left_out, last, first = self._agree(int(is_writer() and not wanted), step, -step)
        if last != -first:
            self._stopped = True
            steps = f"{-first} and {last}"
            self._fail(
                RuntimeError(
                    f"ranks came to snapshots of steps {steps}; pass the same steps on every rank"
                )
            )
        return not left_out

    def _agree(self, *votes: int) -> tuple[int, ...]:
        """Return the largest votes of all ranks, and stop on all once any has failed."""
        worst, *largest = agreed(self._home, self._trouble(), *votes)
        if worst != Trouble.NONE:
            self._stopped = True
            self.failed = self.failed or "the tracker of another rank failed"
            if self._strict or worst == Trouble.MISTAKE:
                error = ValueError if worst == Trouble.MISTAKE else RuntimeError
                raise self._failure or error(self.failed)
        return tuple(largest)

    def _trouble(self) -> Trouble:
        if isinstance(self._failure, ValueError) and self._worker is None:
            return Trouble.MISTAKE
        return Trouble.NONE if self.failed is None else Trouble.FAILURE


def _check_choice(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")


def _finish(pid: int, worker: Worker, recorder: Recorder) -> None:
    """Close a run, also at interpreter exit, but not in a forked child, which has no worker."""
    if os.getpid() == pid:
        worker.drain()
        worker.close()
        recorder.close()
