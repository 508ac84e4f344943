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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from rankscope.measures import Measure
from rankscope.pairs import Pair
from rankscope.store.source import local_path
from rankscope.tracker.budget import Budget, chosen_budget
from rankscope.tracker.buffers import RowBuffer
from rankscope.tracker.changes import ChangeReport
from rankscope.tracker.cost import Cost
from rankscope.tracker.defaults import MeasurerKind, measurer_kind, worker_threads
from rankscope.tracker.gauging import checked_measures
from rankscope.tracker.handover import Handover
from rankscope.tracker.notices import Notices
from rankscope.tracker.open_trackers import remember
from rankscope.tracker.probe import Probe, ProbeFunction, as_probe
from rankscope.tracker.recorder import Recorder, RunOptions
from rankscope.tracker.reference import Reference
from rankscope.tracker.scalars import Scalars
from rankscope.tracker.schedules import Schedule, as_schedule
from rankscope.tracker.setup import check_options, set_up
from rankscope.tracker.sharing import act_together, agreed_sharing, wish_of
from rankscope.tracker.side import open_side
from rankscope.tracker.sinks import Sink, Sinks
from rankscope.tracker.staging import Staging
from rankscope.tracker.state import State
from rankscope.tracker.steps import StepCounter
from rankscope.tracker.worker import Worker

ROWS = 1024  # scalars of every step go to the worker after so many steps, or at a snapshot


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
    example: inputs of the model for `verify`; heads that it refutes are left out, and their pairs.
    include, exclude, raw: which matrices, as in `views`; products and default pairs follow.
    top: number of leading directions that enter an overlap.
    spectrum: "full", or number of leading values to keep. "auto" keeps 64 above a side of 4096.
    every_step: names of scalars to store at every step, not only at snapshots.
    probe: a function of the weights that is called at each snapshot, beside training: see `Probe`.
    sinks: functions of the run so far, or one, called after each snapshot, beside training.
    measure: what to follow beside weights, such as `[rankscope.Updates()]`.

    Where to measure, beside training:

    when_full: what to do when snapshots come faster than they are measured: "block" or "skip".
    places: number of copies of the watched weights that may wait to be measured.
    device: device that decomposes: by default the host, or the model's above a side of 1024.
    beside: decompose in a "thread" of this process or in a "process" of its own. The default is a
        process if a GPU trains and the host decomposes, else a thread.
    threads: cores that decompose: by default one if the CPU trains, else a quarter of them.
    share: let every rank of a distributed training measure a part. Then make and call the tracker
        on each. The default is True for sharded models (FSDP2), which need that anyway.

    The run:

    resume: continue the run at `path` if there is one. The first snapshot taken replaces those at
        its step and later, which are kept in the run's folder `dropped`.
    overwrite: begin a new run at `path`, and remove the one that is there.
    durable: wait for the disk at each commit, so that it survives a loss of power.
    strict: raise an exception instead of one warning when tracking fails.
    attrs: anything JSON can hold about the run (its declaration, its seed), stored with it.
    """

    _pauses = 0
    _last_due: int | None = None  # the same on all ranks
    _stored: int | None = None  # last step of a resumed run
    _budget: Budget | None = None
    _handover: Handover | None = None
    _worker: Worker | None = None
    _recorder: Recorder | None = None  # of the rank that writes

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
        raw: bool = False,
        top: int = 100,
        spectrum: int | Literal["auto", "full"] = "auto",
        every_step: str | Sequence[str] = (),
        example: Any = None,
        probe: Probe | ProbeFunction | None = None,
        sinks: Sink | Sequence[Sink] = (),
        measure: Measure | Sequence[Measure] = (),
        when_full: Literal["block", "skip"] = "block",
        places: int = 2,
        device: torch.device | str | None = None,
        beside: MeasurerKind | None = None,
        threads: int | None = None,
        share: bool | None = None,
        resume: bool = False,
        overwrite: bool = False,
        durable: bool = False,
        strict: bool = False,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        check_options(model, when_full=when_full, beside=beside, places=places, top=top)
        self.path = local_path(path).absolute()  # the working directory may change
        self._schedule = as_schedule(schedule)
        self._block = when_full == "block"
        self._resuming = resume  # until the first step is seen
        self._began = time.perf_counter()
        self._notices = Notices(self.path, strict=strict)
        self._sinks = Sinks(self.path, sinks)
        self._steps = StepCounter(self._notices)
        measures = checked_measures(measure)
        probe = as_probe(probe)
        wish = wish_of(share, probe, measures)
        together = act_together(model, measures, share)
        self._state = State(self.path, strict=strict, sharded=together)
        # Before anything that may gather, such as the forward pass on the example.
        all_here = self._state.all_here("made a Tracker; make it")

        setup = set_up(
            model,
            include=include,
            exclude=exclude,
            raw=raw,
            example=example if all_here else None,
            pairs=pairs,
            products=products,
            top=top,
            spectrum=spectrum,
            probe=probe,
            device=device,
            beside=beside,
            measures=measures,
            warn=self._notices.once,
        )
        self.coverage, self.plan = setup.chosen.coverage, setup.plan
        self._home, device, self._watch = setup.home, setup.device, setup.watch
        self._state.home = self._home
        self._sharing, ranks = agreed_sharing(
            wish, self._state, self._notices, self.plan, self.path, reference, resume=resume
        )
        part = self.plan if self._sharing is None else self._sharing.own.plan
        self._scalars = Scalars(self.plan, every_step, self._notices, taken=setup.gauges.names)
        self._rows = RowBuffer(self._scalars.every_step)
        options = RunOptions(
            every_step=self._rows.names,
            probe=probe,
            buffers=places,
            measurer=beside or measurer_kind(self._home, device),
            threads=threads or worker_threads(self._home, shared=self._sharing is not None),
            resume=resume,
            overwrite=overwrite,
            durable=durable,
            gauges=setup.gauges,
        )
        self._budget = chosen_budget(
            budget,
            schedule,
            part,
            home=self._home,
            measurer=options.measurer,
            threads=options.threads,
            operations=setup.gauges.operations,
        )
        if options.measurer == "process":
            self._watch.keep_dtypes()
        facts = setup.facts(schedule=self._schedule, reference=reference, budget=self._budget)
        changes = ChangeReport(self._watch, self.plan, self._notices)
        own = None if self._sharing is None else part.parameters
        self._staging = Staging(changes, self._scalars, self._rows, self._state, device, share=own)
        if all_here:
            self._open(options, reference, {**(attrs or {}), **facts, **ranks})
            if self._recorder is not None or together:
                self._staging.follow(
                    setup.gauges, model, self._steps, self._schedule, self._notices, self._budget
                )

    def _open(self, options: RunOptions, reference: Reference, attrs: Mapping[str, Any]) -> None:
        """Open this rank's side of the run, and start its worker."""
        self._recorder, self._handover, self._stored = open_side(
            self.path,
            self.plan,
            self._watch,
            options,
            reference=reference,
            home=self._home,
            attrs=attrs,
            sharing=self._sharing,
            budget=self._budget,
            sinks=self._sinks,
            state=self._state,
        )
        if self._handover is not None:
            remember(self, self.path)
            self._worker = self._handover.worker
            self._staging.handover = self._handover
            self._finalize = weakref.finalize(self, self._staging.end, os.getpid())

    @property
    def failed(self) -> str | None:
        """Why tracking has stopped; None while it works."""
        return self._state.failed

    @property
    def cost(self) -> Cost:
        """Cost of tracking so far, on this rank: seconds of training lost, memory."""
        return Cost() if self._handover is None else self._handover.cost

    @property
    def committed(self) -> int | None:
        """The last step whose snapshot is safely on disk; None before the first."""
        return self._recorder.committed if self._recorder is not None else None

    @property
    def last_observed(self) -> int | None:
        """The last step that was observed, as the run counts it."""
        return self._steps.observed

    def observe(self, step: int | None = None, **scalars: Any) -> None:
        """Take a snapshot if one is due at `step`; else return without touching a tensor.

        Call it once per step. Without `step`, steps are counted: from 0, or on from the last one of
        a resumed run. Scalars are stored at snapshots, those of `every_step` always.
        """
        if self._state.stopped or self._pauses:
            return
        try:
            self._observe(step, scalars)
        except Exception as failure:
            self._state.fail(failure)

    def snapshot(self, step: int | None = None, **scalars: Any) -> None:
        """Take a snapshot whatever the schedule says, for instance at the end of training.

        Without `step`, it is that of the weights after the last step observed. This waits for a
        free buffer. It does nothing if a snapshot of `step` was taken or skipped; a later `observe`
        of the same step takes none. Steps must increase.
        """
        if self._state.stopped and self.failed is None:  # a failure has had its warning
            step_named = "" if step is None else f" of step {step}"
            warnings.warn(
                f"{self.path} is closed, so no snapshot{step_named} is taken; call it inside "
                "the tracker's with block",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._state.stopped or self._pauses:
            return
        try:
            self._snapshot(step, scalars)
        except Exception as failure:
            self._state.fail(failure)

    def _observe(self, step: int | None, scalars: Mapping[str, Any]) -> None:
        self._begin(step)
        if (number := self._steps.observe(step)) is None:
            return
        self._staging.finish()
        if self._rows.names:
            self._rows.add(number, self._scalars.usable_at_every_step(scalars))
            if len(self._rows) >= ROWS and self._handover is not None:
                self._handover.send_rows(self._rows)
        due = self._schedule(number) and (self._last_due is None or number > self._last_due)
        self._staging.observed(taken=due and self._take(number, scalars, asked=False))

    def _snapshot(self, step: int | None, scalars: Mapping[str, Any]) -> None:
        self._begin(step)
        number = self._steps.snapshot(step, after=self._last_due)
        if number != self._last_due:
            self._staging.finish()
            self._take(number, scalars, asked=True)

    def _begin(self, step: int | None) -> None:
        """Give up what a resumed run has from its first step on: it is trained anew."""
        if self._budget is not None:
            self._budget.start()
        if not self._resuming:
            return
        self._resuming = False
        if step is None:
            self._steps.observed = self._stored
        first = self._steps.first(step)
        if self._recorder is not None:  # at once: `committed` must not name these any more
            self._recorder.resume_from(first)

    def _take(self, step: int, scalars: Mapping[str, Any], *, asked: bool) -> bool:
        """Take the snapshot of `step` if it is wanted, and return whether it was."""
        # A budget leaves out a step rather than let training wait.
        block = asked or (self._block and self._budget is None)
        room = self._staging.has_place(block=block)
        self._report_worker()
        wanted = self._state.all_want(step, asked or self._affords(step), room=room)
        if self._state.stopped or (self._worker is None and not self._state.sharded):
            return False
        if not wanted:
            if self._handover is not None:
                self._handover.leave_out(step)
            return False
        self._last_due = step
        with nullcontext() if self._budget is None else self._budget.copying():
            return self._staging.stage(step, scalars, block=block)

    def _affords(self, step: int) -> bool:
        """Return whether the budget allows a due step. The first of a run is always taken."""
        if self._budget is None or self._recorder is None:
            return True
        affordable = self._budget.affords_another()
        first = self._last_due is None and self._recorder.committed is None
        return affordable or step == 0 or first

    def flush(self) -> None:
        """Wait until everything observed so far is committed, or the tracker has failed."""
        if self._pauses:
            raise ValueError("flush and close wait for the worker, which rests inside paused()")
        self._staging.finish(last=True)
        if self._worker is None or self._handover is None or self._state.stopped:
            return
        self._handover.finish(self._rows)
        self._report_worker()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Observe nothing inside this context, and let the worker rest.

        Capture CUDA graphs inside it: no other thread may disturb a capture.
        """
        rest = self._worker is not None and not self._pauses
        if rest and self._sharing is not None and self._worker is not None:
            self._worker.drain()  # workers wait for one another: none may rest before all are done
        self._pauses += 1
        self._staging.rest(True)
        try:
            with self._worker.held() if self._worker is not None and rest else nullcontext():
                yield
        finally:
            self._pauses -= 1
            self._staging.rest(self._pauses > 0)

    def close(self) -> None:
        """Commit what is waiting and close the run; safe to call twice."""
        self._staging.close()
        if self._worker is None or self._handover is None or not self._worker.alive:
            self._state.stopped = self._state.stopped or (self._worker is None and not self._pauses)
            return
        wall = time.perf_counter() - self._began
        try:
            self.flush()
        finally:
            if not self._pauses:
                self._handover.note_seconds(wall)
                self._finalize()
                self._state.stopped = True

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _report_worker(self) -> None:
        """Warn of the worker's troubles, in the training thread, where warnings belong."""
        for message in [] if self._handover is None else self._handover.new_failures():
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        if self._worker is not None and self._worker.failure is not None:
            self._state.fail(self._worker.failure)
