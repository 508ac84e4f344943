"""The training loop: one for all networks, followed by a tracker, resumable at any step."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from rankscope import store
from rankscope.lab.running.run import Progress
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.lab.training.distributed import Group
from rankscope.lab.training.optimizers import set_rate
from rankscope.lab.training.order import SampleOrder, generator
from rankscope.lab.training.prefetch import Prefetched
from rankscope.lab.training.rates import RateSchedule
from rankscope.lab.training.step import StepFunction
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.task import Batch, Problem
from rankscope.tracker import Schedule, Tracker

CHECKPOINT_SECONDS = 10.0  # at least, between two checkpoints
CHECKPOINT_SHARE = 0.02  # of the time, at most, that goes into them
CHECKPOINT_DELAY = 3.0  # times CHECKPOINT_SECONDS, at most, for one that would wait for the tracker
LOOK_SECONDS = 0.5  # between two looks at the loss, which wait for a GPU


class Meter:
    """How far training is, how fast, what the tracker costs it."""

    def __init__(self, progress: Progress, *, steps: int, batch: int, unit: str) -> None:
        self._progress = progress
        self._steps = steps
        self._batch = batch
        self._unit = unit
        self._began = self._looked = time.monotonic()
        self._done = 0
        self.held_seconds = 0.0  # in which training waited for snapshots and checkpoints

    @property
    def speed(self) -> float:
        """Samples per second, from the end of the first step of this life, which sets things up."""
        return (self._done - 1) * self._batch / max(time.monotonic() - self._began, 1e-9)

    def tick(self, step: int, loss: torch.Tensor) -> None:
        """One more step is done, the `step`-th in all."""
        self._done += 1
        now = time.monotonic()
        if self._done == 1:
            self._began, self.held_seconds = now, 0.0
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        held = self.held_seconds / max(now - self._began, 1e-9)
        self._progress(
            step / self._steps,
            f"loss {float(loss):.3g}, {self.speed:,.0f} {self._unit}/s, tracker {held:.1%}",
        )


class End(NamedTuple):
    """Where training ended: after all its steps, or before them, and why."""

    step: int
    why: Literal["done", "settled", "diverged"]


@dataclass(frozen=True)
class Loop:
    """All that takes part in training, put together.

    What a step sees follows from `seed` and the step, so a training that goes on from a checkpoint
    ends where an uninterrupted one does. Processes that train together each have one: they take the
    same steps, of which the first one's tracker and checkpoint keep what is kept.
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
    stop: Settled | None
    checkpoint: Checkpoint
    meter: Meter

    def advance(self, first: int, last: int) -> End:
        """Steps `first` to `last`, or until training diverges or may stop."""
        with self._batches(range(first, last)) as batches:
            return self._advance(first, last, batches)

    def _advance(self, first: int, last: int, batches: Iterator[Batch]) -> End:
        loss = torch.tensor(torch.nan)
        looked: int | None = None
        due = time.monotonic() + CHECKPOINT_SECONDS
        for step in range(first, last):
            rate = self.peak_rate * self.rate(step)
            # The snapshot at which training goes on was taken before it stopped.
            if self.snapshots(step) and (step > first or first == 0):
                loss, looked = self._look(step, loss, rate), step
                if step > 0 and not torch.isfinite(loss):
                    return End(step, "diverged")
                if self._settled(step):
                    return End(step, "settled")
            if self.group.leads and self._may_save(due, looked):
                took = self._save(step)
                due = time.monotonic() + max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)
            set_rate(self.optimizer, rate)
            loss = self.learn(next(batches))
            self.meter.tick(step + 1, loss)
        loss = self._look(last, loss, 0.0)
        return End(last, "done" if torch.isfinite(loss) else "diverged")

    def _batches(self, steps: range) -> Prefetched:
        """What this process learns from at each of `steps`."""

        def draw(step: int) -> Batch:
            indices = self.group.own(self.order(step))
            return self.problem.draw(indices, generator(self.seed, self.group.noise, step))

        device = next(self.problem.model.parameters()).device
        return Prefetched(draw, steps, ahead=self.problem.ahead, device=device)

    def _look(self, step: int, loss: torch.Tensor, rate: float) -> torch.Tensor:
        """A snapshot; its `loss`, which is returned, is that of the last batch before it."""
        began = time.monotonic()
        loss = self.group.mean(loss)
        self.tracker.observe(step, loss=loss, rate=rate)
        self.meter.held_seconds += time.monotonic() - began
        return loss

    def _settled(self, step: int) -> bool:
        """Whether training may stop here; the same step whether it was interrupted or not."""
        if self.stop is None or step < self.stop.steps:
            return False
        stop = self.stop
        return self.group.decide(lambda: self._over(stop, step))

    def _over(self, stop: Settled, step: int) -> bool:
        committed = self.tracker.committed
        if committed is None or committed < step - stop.steps:
            self.tracker.flush()
        return stop.over(store.open(self.tracker.path), step)

    def _may_save(self, due: float, looked: int | None) -> bool:
        """Whether one is due and the tracker has stored what it saw, or would now be late."""
        late = time.monotonic() - due
        if late <= 0:
            return False
        stored = looked is None or self.tracker.committed == looked
        return stored or late > CHECKPOINT_DELAY * CHECKPOINT_SECONDS

    def _save(self, step: int) -> float:
        """What lies before a checkpoint must be in the store before the checkpoint is there.

        Returns the seconds it took, without those in which the tracker did what was its to do.
        """
        began = time.monotonic()
        self.tracker.flush()
        flushed = time.monotonic()
        self.checkpoint.save(step, self.problem.model, self.optimizer)
        saved = time.monotonic()
        self.meter.held_seconds += saved - began
        return saved - flushed
