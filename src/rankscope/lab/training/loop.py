"""The training loop for all networks, with a tracker, resumable at any step."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from rankscope import store
from rankscope.lab.running.run_key import Progress
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.lab.training.distributed import Alone, Group
from rankscope.lab.training.optimizers import set_rate
from rankscope.lab.training.order import SampleOrder, generator
from rankscope.lab.training.prefetch import Prefetched
from rankscope.lab.training.rates import RateSchedule
from rankscope.lab.training.step import StepFunction
from rankscope.lab.training.stopping import Stop
from rankscope.lab.training.task import Batch, Problem
from rankscope.tracker import Schedule, Tracker

CHECKPOINT_SECONDS = 10.0  # at least, between two checkpoints
CHECKPOINT_SHARE = 0.02  # largest share of the time spent on checkpoints
CHECKPOINT_DELAY = 3.0  # times CHECKPOINT_SECONDS: the longest a checkpoint waits for the tracker
REPORT_SECONDS = 0.5  # between two reports of the loss, each of which waits for the GPU


class Meter:
    """A meter of progress, of speed, and of the time that training waits for the tracker."""

    def __init__(self, progress: Progress, *, steps: int, batch: int, unit: str) -> None:
        self._progress, self._steps, self._batch, self._unit = progress, steps, batch, unit
        self._began = self._reported = time.monotonic()
        self._done = 0
        self.held_seconds = 0.0  # spent by training on snapshots and checkpoints

    @property
    def speed(self) -> float:
        """Samples per second since the first step of this process, which includes setup."""
        return (self._done - 1) * self._batch / max(time.monotonic() - self._began, 1e-9)

    def tick(self, step: int, loss: torch.Tensor) -> None:
        """Count one more step, the `step`-th of the training."""
        self._done += 1
        now = time.monotonic()
        if self._done == 1:
            self._began, self.held_seconds = now, 0.0
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        held = self.held_seconds / max(now - self._began, 1e-9)
        self._progress(
            step / self._steps,
            f"loss {float(loss):.3g}, {self.speed:,.0f} {self._unit}/s, tracker {held:.1%}",
        )


class End(NamedTuple):
    """The step at which training ended, and why."""

    step: int
    why: Literal["done", "settled", "diverged"]


@dataclass(frozen=True)
class Loop:
    """The assembled parts of one training.

    Batch and noise of a step follow from `seed` and the step, so a resumed training ends where an
    uninterrupted one does. Processes that train together have one loop each and take the same
    steps. Only the first process's tracker and checkpoint write.
    """

    problem: Problem
    learn: StepFunction
    optimizer: torch.optim.Optimizer
    peak_rate: float
    rate: RateSchedule
    order: SampleOrder
    seed: int
    group: Group
    tracker: Tracker
    snapshots: Schedule
    stop: Stop | None
    checkpoint: Checkpoint
    meter: Meter

    def advance(self, first: int, last: int) -> End:
        """Train from step `first` to step `last`, or until training diverges or may stop."""
        with self._batches(range(first, last)) as batches:
            return self._advance(first, last, batches)

    def _advance(self, first: int, last: int, batches: Iterator[Batch]) -> End:
        loss = torch.tensor(torch.nan)
        observed: int | None = None  # step of the last snapshot taken here
        due = time.monotonic() + CHECKPOINT_SECONDS
        for step in range(first, last):
            rate = self.peak_rate * self.rate(step)
            # A resumed training has already taken the snapshot at its first step.
            if self.snapshots(step) and (step > first or first == 0):
                loss, observed = self._observe(step, loss, rate), step
                if step > 0 and not torch.isfinite(loss):
                    return End(step, "diverged")
                if self._settled(step):
                    return End(step, "settled")
            if self.group.leads and self._may_save(due, observed):
                took = self._save(step)
                due = time.monotonic() + max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)
            set_rate(self.optimizer, rate)
            loss = self.learn(next(batches))
            self.meter.tick(step + 1, loss)
        loss = self._observe(last, loss, 0.0)
        return End(last, "done" if torch.isfinite(loss) else "diverged")

    def _batches(self, steps: range) -> Prefetched:
        """This process's part of the batch at each of `steps`."""
        noise = Alone().noise if self.problem.noise_per_sample else self.group.noise

        def draw(step: int) -> Batch:
            indices = self.group.own(self.order(step))
            return self.problem.draw(indices, generator(self.seed, noise, step))

        device = next(self.problem.model.parameters()).device
        return Prefetched(draw, steps, ahead=self.problem.ahead, device=device)

    def _observe(self, step: int, loss: torch.Tensor, rate: float) -> torch.Tensor:
        """Take a snapshot with the loss of the last batch before it, and return that loss."""
        began = time.monotonic()
        loss = self.group.mean(loss)
        self.tracker.observe(step, loss=loss, rate=rate)
        self.meter.held_seconds += time.monotonic() - began
        return loss

    def _settled(self, step: int) -> bool:
        """True if training may stop here; a resumed training stops at the same step."""
        stop = self.stop
        if stop is None or step < stop.steps:
            return False

        def over() -> bool:
            committed = self.tracker.committed
            if committed is None or committed < step - stop.steps:
                self.tracker.flush()
            return stop.over(store.open(self.tracker.path), step)

        return self.group.decide(over)

    def _may_save(self, due: float, observed: int | None) -> bool:
        """True if a checkpoint is due and the last snapshot is stored, or it can wait no longer."""
        late = time.monotonic() - due
        if late <= 0:
            return False
        stored = observed is None or self.tracker.committed == observed
        return stored or late > CHECKPOINT_DELAY * CHECKPOINT_SECONDS

    def _save(self, step: int) -> float:
        """Write a checkpoint and return the seconds it took, without those of the tracker.

        The tracker flushes first: the store must hold every snapshot before the checkpoint.
        """
        began = time.monotonic()
        self.tracker.flush()
        flushed = time.monotonic()
        self.checkpoint.save(step, self.problem.model, self.optimizer)
        saved = time.monotonic()
        self.meter.held_seconds += saved - began
        return saved - flushed
