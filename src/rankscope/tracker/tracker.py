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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import views
from rankscope.pairs import Pair
from rankscope.provenance import origin
from rankscope.tracker.buffers import Buffer, Handoff, RowBuffer, detached
from rankscope.tracker.defaults import (
    MeasurerKind,
    default_pairs,
    measurer_kind,
    measuring_device,
    worker_threads,
)
from rankscope.tracker.distributed import Trouble, gathered, is_sharded, is_writer, worst_of_ranks
from rankscope.tracker.probe import Probe
from rankscope.tracker.recorder import Recorder, RunOptions, open_run
from rankscope.tracker.reference import Reference, describe_reference, given_reference
from rankscope.tracker.schedules import Schedule, as_schedule
from rankscope.tracker.watch import Watch
from rankscope.tracker.worker import Worker
from rankscope.verification import verified_manifest

ROWS = 1024  # scalars of every step go to the worker after so many steps, or at a snapshot


class Tracker:
    """Measures every spectrum of `model` while it trains, and writes them to the run at `path`.

    What to measure:

    schedule: steps at which to take a snapshot: a schedule, n for every n steps, or a list of
        steps. The default is log-spaced.
    pairs: pairs of matrices whose overlaps to measure. The default are those the model declares
        (`alignment_pairs()`), else those inside its attention and recurrent modules;
        `discover_pairs` finds all.
    reference: weights from which changes are measured: "init" (the first snapshot), a checkpoint
        file, a state dict, a model, or None.
    products: measure the products of attention heads and of LoRA pairs too.
    example: inputs of the model for `verify`; heads that it refutes are left out.
    include, exclude: patterns on matrix names, as in `views`; products and default pairs follow.
    top: number of leading directions that enter an overlap.
    every_step: names of scalars to store at every step, not only at snapshots.
    probe: a function of the weights that is called at each snapshot, beside training: see `Probe`.

    Where to measure, beside training:

    when_full: what to do when snapshots come faster than they are measured: "block" or "skip".
    places: number of copies of the watched weights that may wait to be measured.
    device: device that decomposes: by default the host, or the model's above a side of 1024.
    beside: decompose in a "thread" of this process or in a "process" of its own. The default is a
        process if a GPU trains and the host decomposes, else a thread.
    threads: cores that decompose: by default one if the CPU trains, else a quarter of them.

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
    _worker: Worker | None = None
    _recorder: Recorder | None = None

    def __init__(
        self,
        model: nn.Module,
        path: str | Path,
        *,
        schedule: Schedule | int | Sequence[int] | None = None,
        pairs: Sequence[Pair] | None = None,
        reference: Reference = "init",
        products: bool = True,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        top: int = 100,
        every_step: Sequence[str] = (),
        example: Any = None,
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
        self.path = Path(path)
        self._schedule = as_schedule(schedule)
        self._block = when_full == "block"
        self._strict = strict
        self._resuming = resume  # until the first step is seen
        self._rows = RowBuffer(every_step)
        self._began = time.perf_counter()

        like = verified_manifest(model, example)
        chosen = views(model, like=like, include=include, exclude=exclude)
        self.coverage = chosen.coverage
        self.plan = snapshot.plan(
            chosen,
            pairs=default_pairs(model, chosen) if pairs is None else pairs,
            products=products,
            top=top,
            directions={} if probe is None else probe.directions,
        )
        self._watch = Watch(model, self.plan, everything=probe is not None)
        self._place_work(device, beside)
        self._open(
            RunOptions(
                every_step=self._rows.names,
                probe=probe,
                buffers=places,
                measurer=beside or measurer_kind(self._home, self._device),
                threads=threads or worker_threads(self._home),
                resume=resume,
                durable=durable,
            ),
            reference,
            {
                **(attrs or {}),
                "schedule": repr(self._schedule),
                "reference": describe_reference(reference),
                "coverage": str(self.coverage),
                "manifest": chosen.manifest.to_json(),
            },
        )

    def _place_work(self, device: torch.device | str | None, beside: MeasurerKind | None) -> None:
        """Set where the model trains and where its copies are decomposed."""
        tensors = self._watch.tensors()
        self._sharded = is_sharded(tensors)
        self._home = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
        asked = None if device is None else torch.device(device)
        self._device = asked or measuring_device(self._home, self.plan)
        if beside == "process" and self._device.type != "cpu":
            raise ValueError('a process measures on the host; pass device="cpu" or beside="thread"')

    def _open(self, options: RunOptions, reference: Reference, attrs: Mapping[str, Any]) -> None:
        """Open the run in the process that writes it; all ranks learn if that fails."""
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
        if self._sharded:
            self._stop_together()
        if isinstance(self._failure, ValueError):
            raise self._failure

    @property
    def committed(self) -> int | None:
        """The last step whose snapshot is safely on disk; None before the first."""
        return self._recorder.committed if self._recorder is not None else None

    def observe(self, step: int, **scalars: SupportsFloat) -> None:
        """Take a snapshot if one is due at `step`; else return without touching a tensor.

        Call it once per step. Scalars are stored at snapshots, those of `every_step` always.
        """
        if self._stopped or self._pauses:
            return
        try:
            self._observe(step, scalars)
        except Exception as failure:
            self._fail(failure)

    def snapshot(self, step: int, **scalars: SupportsFloat) -> None:
        """Take a snapshot whatever the schedule says, for instance at the end of training.

        This waits for a free buffer. It does nothing if `step` was the last one due, even if that
        was skipped; a later `observe` of the same step takes none. Steps must increase.
        """
        if self._stopped and self.failed is None:  # a failure has had its warning
            warnings.warn(
                f"{self.path} is closed, so no snapshot of step {step} is taken; call it inside "
                "the tracker's with block",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._stopped or self._pauses or step == self._last_due:
            return
        try:
            self._begin(step)
            self._take(step, scalars, block=True)
        except Exception as failure:
            self._fail(failure)

    def _observe(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        self._begin(step)
        if self._rows.names:
            self._rows.add(step, scalars)
            if len(self._rows) >= ROWS:
                self._send_rows()
        if self._schedule(step) and step != self._last_due:
            self._take(step, scalars, block=self._block)

    def _begin(self, step: int) -> None:
        """Drop what a resumed run has from its first step on: it is trained anew."""
        if self._resuming:
            self._resuming = False
            self._submit(lambda recorder: recorder.forget_from(step))

    def _take(self, step: int, scalars: Mapping[str, SupportsFloat], *, block: bool) -> None:
        self._report_worker()
        if self._sharded and self._stop_together():
            return
        self._last_due = step
        if self._sharded or self._worker is not None:
            self._copy(step, scalars, block=block)

    def _copy(self, step: int, scalars: Mapping[str, SupportsFloat], *, block: bool) -> None:
        tensors = self._watch.tensors()
        columns = {name: [detached(value)] for name, value in scalars.items()}
        began = time.perf_counter()
        buffer = self._free_buffer(block=block)
        waited = time.perf_counter() - began
        whole = gathered(tensors)
        try:
            if buffer is not None:
                buffer.fill(whole, device=self._device)
        finally:
            if self._sharded:
                for _ in whole:
                    pass  # gathering is collective: a rank that copies nothing still takes part
        self._send_rows()
        if buffer is None:
            self._submit(lambda recorder: recorder.record_gap(step))
            return
        handoff, pool = Handoff(columns), self._pool
        self._submit(
            lambda recorder: recorder.record(step, buffer, handoff, wait_seconds=waited),
            after=lambda: pool.give_back(buffer),
        )

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
                self._submit(lambda recorder: recorder.record_wall(wall))
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
        self._stopped = self._stopped or not self._sharded
        if self._strict and self._stopped:
            raise failure

    def _stop_together(self) -> bool:
        """Return True on every rank once any has failed; a collective."""
        worst = worst_of_ranks(self._trouble(), home=self._home)
        if worst == Trouble.NONE:
            return False
        self._stopped = True
        self.failed = self.failed or "the tracker of another rank failed"
        if self._strict or worst == Trouble.MISTAKE:
            error = ValueError if worst == Trouble.MISTAKE else RuntimeError
            raise self._failure or error(self.failed)
        return True

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
