"""Tracker: three lines in any training loop.

    with rankscope.Tracker(model, "runs/first") as tracker:
        for step, batch in enumerate(batches):
            ...
            tracker.observe(step, loss=loss)

What it may and may not do to somebody's training stands in docs/tracker.md; the tests hold it to
that.
"""

import math
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, SupportsFloat

import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import views
from rankscope.pairs import Pair
from rankscope.provenance import origin
from rankscope.tracker.defaults import (
    pairs_of,
    what_measures,
    where_to_measure,
    worker_threads,
)
from rankscope.tracker.opening import open_run
from rankscope.tracker.probe import Probe
from rankscope.tracker.recorder import Recorder
from rankscope.tracker.reference import Reference, describe_reference, given_reference
from rankscope.tracker.schedules import Schedule, as_schedule
from rankscope.tracker.sharding import gathered, is_sharded, is_writer, worst_of_ranks
from rankscope.tracker.staging import Handoff, Place, Staging, kept
from rankscope.tracker.watch import Watch
from rankscope.tracker.worker import Worker

# Buffered every-step scalars go to the worker at the latest when this many steps have gathered.
ROWS = 1024


class Tracker:
    """Follows every spectrum of `model` while it trains, and writes them to the run at `path`.

    schedule: which steps are snapshots: a schedule, n for every n steps, a list of steps;
        log-spaced by default.
    pairs: whose overlaps to follow; by default those the model declares (`alignment_pairs()`), else
        those inside its attention and recurrent modules; `discover_pairs` finds all.
    reference: what changes are measured from: "init" (the weights at the first snapshot), a
        checkpoint file, a state dict, a model, or None.
    products: also follow the products of attention heads and of LoRA pairs.
    include, exclude: patterns on matrix names, as in `views`; products and default pairs follow.
    top: how many leading directions enter an overlap.
    every_step: names of scalars to keep at every step, not only at snapshots.
    probe: what else to measure of the weights at each snapshot, beside training: see `Probe`.
    when_full: what to do when scheduled snapshots come faster than they are measured: "block" or
        "skip".
    places: how many copies of the watched weights may wait to be measured.
    device: where to decompose; by default on the host, for matrices of a shorter side above 1024
        where the model is.
    beside: what decomposes there: a "thread" of this process or a "process" of its own; by default
        a process where a GPU trains and the host decomposes, else a thread.
    threads: how many cores it uses; by default one where the CPU trains, else half of them.
    resume: go on with the run at `path` if there is one; steps seen again are trained anew.
    durable: wait for the disk at each commit, so that it survives a loss of power.
    strict: raise where it would otherwise warn once and let training go on.
    attrs: anything JSON can say about the run (its declaration, its seed), stored with it.
    """

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
        probe: Probe | None = None,
        when_full: Literal["block", "skip"] = "block",
        places: int = 2,
        device: torch.device | str | None = None,
        beside: Literal["thread", "process"] | None = None,
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
        self.failed: str | None = None
        self._schedule = as_schedule(schedule)
        self._every_step = tuple(every_step)
        self._block = when_full == "block"
        self._strict = strict
        self._failure: BaseException | None = None
        self._stopped = False
        self._pauses = 0
        self._first_after_resume = resume
        self._latest: int | None = None  # the last step that was due; the same on all ranks
        self._rows: list[tuple[int, Mapping[str, SupportsFloat]]] = []
        self._began = time.perf_counter()

        chosen = views(model, include=include, exclude=exclude)
        self.coverage = chosen.coverage
        self.plan = snapshot.plan(
            chosen,
            pairs=pairs_of(model, chosen) if pairs is None else pairs,
            products=products,
            top=top,
            directions={} if probe is None else probe.directions,
        )
        self._watch = Watch(model, self.plan, everything=probe is not None)
        tensors = self._watch.tensors()
        self._sharded = is_sharded(tensors)
        home = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
        self._device = where_to_measure(home, self.plan) if device is None else torch.device(device)
        if beside == "process" and self._device.type != "cpu":
            raise ValueError('a process measures on the host; pass device="cpu" or beside="thread"')
        self._home = home
        self._worker: Worker | None = None
        self._recorder: Recorder | None = None
        # On every rank: a sharded reference is gathered by all of them.
        weights = given_reference(reference, self.plan)
        if is_writer():
            self._start(
                lambda: open_run(
                    self.path,
                    self.plan,
                    tensors,
                    every_step=self._every_step,
                    reference=weights,
                    from_init=reference == "init",
                    places=places,
                    beside=beside or what_measures(home, self._device),
                    threads=threads or worker_threads(home),
                    resume=resume,
                    durable=durable,
                    probe=probe,
                    attrs={
                        **origin(home),
                        **(attrs or {}),
                        "schedule": repr(self._schedule),
                        "reference": describe_reference(reference),
                        "coverage": str(self.coverage),
                        "manifest": chosen.manifest.to_json(),
                    },
                )
            )
        if self._sharded:
            self._stop_together()
        if isinstance(self._failure, ValueError):
            raise self._failure

    def _start(self, start: Callable[[], tuple[Recorder, Staging]]) -> None:
        """Opens the run and starts the worker; a disk in trouble must not end training."""
        try:
            self._recorder, self._staging = start()
        except ValueError as mistake:
            self.failed, self._failure = str(mistake), mistake  # raised when all ranks know of it
            return
        except Exception as failure:
            self._fail(failure)
            return
        self._worker = Worker()
        self._finalize = weakref.finalize(self, _finish, os.getpid(), self._worker, self._recorder)

    @property
    def committed(self) -> int | None:
        """The last step whose snapshot is safely on disk; None before the first."""
        return self._recorder.committed if self._recorder is not None else None

    def observe(self, step: int, **scalars: SupportsFloat) -> None:
        """Call once per step. Unless a snapshot is due it returns without touching a tensor."""
        if self._stopped or self._pauses:
            return
        try:
            self._observe(step, scalars)
        except Exception as failure:
            self._fail(failure)

    def snapshot(self, step: int, **scalars: SupportsFloat) -> None:
        """A snapshot whatever the schedule says, of the end of training for instance.

        It waits for a free place. Nothing happens where `step` was the last one due, even if that
        was skipped; a later `observe` of the same step takes none. Steps go forward.
        """
        if self._stopped and self.failed is None:  # a failure was warned of when it came
            warnings.warn(
                f"{self.path} is closed, so no snapshot of step {step} is taken; call it inside "
                "the tracker's with block",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._stopped or self._pauses or step == self._latest:
            return
        try:
            self._begin(step)
            self._take(step, scalars, block=True)
        except Exception as failure:
            self._fail(failure)

    def _observe(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        self._begin(step)
        if self._every_step:
            self._keep_row(step, scalars)
        if self._schedule(step) and step != self._latest:
            self._take(step, scalars, block=self._block)

    def _begin(self, step: int) -> None:
        """What a resumed run has from its first step on is trained anew."""
        if self._first_after_resume:
            self._first_after_resume = False
            self._submit(lambda recorder: recorder.forget_from(step))

    def _take(self, step: int, scalars: Mapping[str, SupportsFloat], *, block: bool) -> None:
        self._hear_worker()
        if self._sharded and self._stop_together():
            return
        self._latest = step
        if self._sharded or self._worker is not None:
            self._copy(step, scalars, block=block)

    def _copy(self, step: int, scalars: Mapping[str, SupportsFloat], *, block: bool) -> None:
        tensors = self._watch.tensors()
        columns = {name: [kept(value)] for name, value in scalars.items()}
        began = time.perf_counter()
        place = self._free_place(block=block)
        waited = time.perf_counter() - began
        whole = gathered(tensors)
        try:
            if place is not None:
                place.fill(whole, device=self._device)
        finally:
            if self._sharded:
                for _ in whole:
                    pass  # gathering is collective: a rank that keeps nothing still takes part
        self._send_rows()
        if place is None:
            self._submit(lambda recorder: recorder.record_gap(step))
            return
        handoff, staging = Handoff(columns), self._staging
        self._submit(
            lambda recorder: recorder.record(step, place, handoff, wait_seconds=waited),
            after=lambda: staging.give_back(place),
        )

    def _free_place(self, *, block: bool) -> Place | None:
        """A place to copy to; None if this process does not write, or if full and not to wait."""
        place = None
        while place is None and self._worker is not None and self._worker.alive:
            place = self._staging.take(timeout=0.2 if block else 0.0)
            if not block:
                break
        return place

    def _keep_row(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        self._rows.append((step, {n: kept(scalars.get(n, math.nan)) for n in self._every_step}))
        if len(self._rows) >= ROWS:
            self._send_rows()

    def _send_rows(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        steps = [step for step, _ in rows]
        columns = Handoff({name: [row[name] for _, row in rows] for name in self._every_step})
        self._submit(lambda recorder: recorder.record_rows(steps, columns))

    def _submit(
        self, job: Callable[[Recorder], None], *, after: Callable[[], None] | None = None
    ) -> None:
        recorder = self._recorder
        if self._worker is not None and recorder is not None:
            self._worker.submit(lambda: job(recorder), after=after)

    def flush(self) -> None:
        """Waits until everything observed so far is committed (or the tracker has failed)."""
        if self._pauses:
            raise ValueError("flush and close wait for the worker, which rests inside paused()")
        self._send_rows()
        if self._worker is None or self._stopped:
            return
        self._worker.drain()
        self._hear_worker()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is observed and the worker rests: for CUDA-graph capture, which no other
        thread may disturb."""
        rest = self._worker is not None and not self._pauses
        self._pauses += 1
        try:
            with self._worker.held() if self._worker is not None and rest else nullcontext():
                yield
        finally:
            self._pauses -= 1

    def close(self) -> None:
        """Commits what is waiting and ends the run; safe to call twice."""
        if self._worker is None or self._recorder is None or not self._worker.alive:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _hear_worker(self) -> None:
        """Takes over what the worker met with since: warnings belong to the training thread."""
        if self._recorder is not None:
            unreadable = self._recorder.newly_failed()
            if unreadable:
                warnings.warn(_unreadable(unreadable), RuntimeWarning, stacklevel=5)
        if self._worker is not None and self._worker.failure is not None:
            self._fail(self._worker.failure)

    def _fail(self, failure: BaseException) -> None:
        """Warns once and lets training go on; `strict` raises instead."""
        if self.failed is None:
            self.failed = f"{type(failure).__name__}: {failure}"
            self._failure = failure
            if not self._strict:
                message = (
                    f"rankscope stopped tracking {self.path} and training goes on: {self.failed}"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=4)
        # Ranks that gather shards stop together, at the next snapshot; alone, this one stops at
        # once.
        self._stopped = self._stopped or not self._sharded
        if self._strict and self._stopped:
            raise failure

    def _stop_together(self) -> bool:
        """True on every rank once any has failed; a collective."""
        mistaken = isinstance(self._failure, ValueError) and self._worker is None
        verdict = worst_of_ranks(2 if mistaken else int(self.failed is not None), home=self._home)
        if verdict == 0:
            return False
        self._stopped = True
        self.failed = self.failed or "the tracker of another rank failed"
        if self._strict or verdict == 2:
            # A user's mistake in the constructor ends every rank, as it would end one process.
            raise self._failure or (ValueError if verdict == 2 else RuntimeError)(self.failed)
        return True


def _check_choice(name: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")


def _unreadable(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5]) + (" ..." if len(names) > 5 else "")
    return (
        f"rankscope: {len(names)} matrices cannot be decomposed, their spectra are NaN: "
        f"{shown}; look for NaN or Inf in these weights"
    )


def _finish(pid: int, worker: Worker, recorder: Recorder) -> None:
    """Ends a run: also at interpreter exit, and never from a forked child, which has no worker."""
    if os.getpid() == pid:
        worker.drain()
        worker.close()
        recorder.close()
