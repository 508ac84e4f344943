"""A training as a run of an experiment: declared once, executed, killed, resumed."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from rankscope import store
from rankscope.lab.running.run import Progress
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.lab.training.declared import Fusable, pairs_of
from rankscope.lab.training.distributed import Alone, Group, current_group
from rankscope.lab.training.evaluation import Evaluation, Truncation
from rankscope.lab.training.loop import End, Loop, Meter
from rankscope.lab.training.optimizers import Optimizer
from rankscope.lab.training.rates import Constant, RateSchedule, total
from rankscope.lab.training.step import (
    GraphedStep,
    Precision,
    StepFunction,
    compiled_loss,
    compiler_at_hand,
    plain_step,
)
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.surroundings import surroundings
from rankscope.lab.training.task import Place, Problem, Task
from rankscope.tracker import Epochs, Every, LogEpochs, LogSpaced, Tracker


@dataclass(frozen=True)
class TrainingRun:
    """One network, trained and followed; by several processes where they execute it together.

    snapshots: at which steps, besides the last; an epoch there is a declared number of steps.
    batch: samples per optimizer step, taken in `accumulate` equal parts, which processes share.
    clip: the largest norm of a gradient.
    precision: of products while training and evaluating; weights are float32 in any case.
    evaluation_samples: training samples whose loss is measured at each snapshot.
    paper_decay: the paper's decay that this run stands for; `optimizer.decay` differs from it
        where training is shorter, so that sum(rate x decay) stays about the same.
    changes: also follow the products of attention heads, and how far these and the matrices are
        from their initial values (boix2023).
    stop: what ends training before `steps`.
    """

    task: Task
    optimizer: Optimizer
    steps: int
    batch: int
    snapshots: Epochs | Every | LogEpochs | LogSpaced
    rate: RateSchedule = Constant()  # noqa: RUF009
    clip: float | None = None
    accumulate: int = 1
    precision: Precision = "float32"
    evaluation_samples: int = 5000
    truncation: Truncation | None = None
    paper_decay: float | None = None
    changes: bool = False
    stop: Settled | None = None
    place: Place = field(default=Place(), compare=False)

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.accumulate) < 1 or self.batch % self.accumulate:
            raise ValueError(
                "steps, batch and accumulate must be at least 1, and batch a multiple of "
                f"accumulate; got {self.steps}, {self.batch} and {self.accumulate}"
            )

    @property
    def rate_sum(self) -> float:
        """The sum of the learning rates of all steps."""
        return self.optimizer.rate * total(self.rate, self.steps)

    @property
    def decay_sum(self) -> float:
        """sum(rate x decay) over training: how much decay acts in all."""
        return self.optimizer.decay * self.rate_sum

    def with_decay(self, decay: float, *, paper: float) -> "TrainingRun":
        """The same with another decay, and the paper's that it stands for."""
        return replace(self, optimizer=replace(self.optimizer, decay=decay), paper_decay=paper)

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        """Train from the checkpoint beside `path`, or from the start, and store it at `path`.

        A loss that is no longer finite ends it: the store then says `diverged_at`. One that never
        was is a failure.
        """
        with surroundings(torch.device(self.place.device)):
            with self.assembled(path, seed=seed, progress=progress) as (loop, first):
                end = loop.advance(first, self.steps)
                speed = loop.meter.speed
            if loop.group.leads:
                if end.why == "diverged":
                    self._require_finite_start(path)
                self._keep_facts(loop, path, speed=speed, end=end)

    @contextmanager
    def assembled(self, path: Path, *, seed: int, progress: Progress) -> Iterator[tuple[Loop, int]]:
        """All that training takes, a tracker to `path` included, and the step to start at."""
        group, checkpoint = current_group(), Checkpoint(path)
        with group.in_turn():
            problem, optimizer = self._built(group, seed=seed)
            order = problem.order(self.batch, seed=seed)
            first = checkpoint.load(
                problem.model, optimizer, snapshots=self._snapshots, stored=steps_of(path)
            )
            if first == 0 and group.leads:  # what others see of the folder may be out of date
                checkpoint.remove()
        firsts = group.gathered(first)
        with group.in_turn():
            require_one_start(firsts, path)
            tracker = self._tracker(problem, path, group)
        with tracker:
            loop = Loop(
                problem=problem,
                learn=self._step(group, problem, optimizer, tracker),
                optimizer=optimizer,
                peak_rate=self.optimizer.rate,
                rate=self.rate,
                order=order,
                seed=seed,
                group=group,
                tracker=tracker,
                snapshots=self._snapshots,
                stop=self.stop,
                checkpoint=checkpoint,
                meter=Meter(progress, steps=self.steps, batch=self.batch, unit=problem.unit),
            )
            yield loop, first

    def forget(self, path: Path) -> None:
        """Remove what a run that is over, or was declared otherwise, no longer needs."""
        Checkpoint(path).remove()

    def _parts(self, group: Group) -> int:
        """How many each process takes: none is larger than one process alone would take."""
        return -(-self.accumulate // group.size)

    @property
    def _snapshots(self) -> "WithLast":
        return WithLast(self.snapshots, self.steps)

    def _built(self, group: Group, *, seed: int) -> tuple[Problem, torch.optim.Optimizer]:
        if self.batch % (group.size * self._parts(group)):
            raise ValueError(
                f"a batch of {self.batch} cannot be split among {group.size} processes that take "
                f"{self._parts(group)} equal parts each; start another number of processes"
            )
        device = torch.device(self.place.device)
        problem = self.task.build(self.place, seed=seed)
        if device.type == "cuda":  # the layout that its convolutions want
            problem.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return problem, self.optimizer.build(problem.model.parameters(), device)

    def _tracker(self, problem: Problem, path: Path, group: Group) -> Tracker:
        probe = None
        if group.leads:
            probe = Evaluation(
                problem,
                samples=self.evaluation_samples,
                truncation=self.truncation,
                precision=self.precision,
            )
        return Tracker(
            problem.model,
            path,
            schedule=self._snapshots,
            pairs=pairs_of(problem.model),
            reference="init" if self.changes else None,
            products=self.changes,
            probe=probe,
            resume=True,
            strict=True,
        )

    def _step(
        self,
        group: Group,
        problem: Problem,
        optimizer: torch.optim.Optimizer,
        tracker: Tracker,
    ) -> StepFunction:
        step = plain_step(
            group.shared(problem, parts=self._parts(group)),
            optimizer,
            accumulate=self._parts(group),
            clip=self.clip,
            precision=self.precision,
            loss=compiled_loss(problem) if self._compiled(group, problem) else None,
        )
        if not self._graphed(group, problem):
            return step
        return GraphedStep(step, problem.model, optimizer, paused=tracker.paused)

    def _graphed(self, group: Group, problem: Problem) -> bool:
        """Gradients on their way to other processes are no part of a graph."""
        alone = isinstance(group, Alone)
        return self.place.device != "cpu" and problem.capturable and alone

    def _compiled(self, group: Group, problem: Problem) -> bool:
        model = problem.model
        asked = isinstance(model, Fusable) and model.fusable
        return asked and self._graphed(group, problem) and compiler_at_hand()

    def _require_finite_start(self, path: Path) -> None:
        """What had no loss to begin with did not diverge: something else is wrong with it."""
        loss = float(store.open(path)["training_loss"][0])
        if not math.isfinite(loss):
            self.forget(path)
            raise RuntimeError(
                f"the loss of the untrained network is {loss}; look for what is not finite in the "
                "data, or try another precision or device"
            )

    def _keep_facts(self, loop: Loop, path: Path, *, speed: float, end: End) -> None:
        """What the store says of the training as a whole."""
        problem = loop.problem
        facts: dict[str, Any] = {
            "decay": self.optimizer.decay,
            "paper_decay": self.paper_decay,
            "decay_sum": self.decay_sum,
            "constant_loss": problem.constant_loss,
            "diverged_at": end.step if end.why == "diverged" else None,
            "stopped_at": end.step if end.why == "settled" else None,
            "shown_matrix": problem.shown.matrix,
            "shown_pair": problem.shown.pair,
            "unit": problem.unit,
            "speed": speed,
            "compiled": self._compiled(loop.group, problem),
            "parameters": sum(each.numel() for each in problem.model.parameters()),
        }
        if end.why != "diverged":
            with torch.no_grad():
                facts |= problem.finale(problem.model.eval())
        with store.Writer.resume(path) as writer:
            writer.set_attrs(facts)


@dataclass(frozen=True)
class WithLast:
    """A schedule, and the last step whatever it says."""

    schedule: Epochs | Every | LogEpochs | LogSpaced
    last: int

    def __call__(self, step: int) -> bool:
        return step == self.last or self.schedule(step)


def require_one_start(firsts: list[int], path: Path) -> None:
    """All processes have to go on from the same checkpoint, or none of them from any."""
    if len(set(firsts)) > 1:
        raise ValueError(
            f"processes would start {path.name} at different steps, {', '.join(map(str, firsts))}; "
            f"{path.parent} has to be one folder, on a file system that all of them see"
        )


def steps_of(path: Path) -> list[int]:
    """The snapshots of an unfinished run; none where there is no store."""
    return store.open(path)["step"].to_numpy().tolist() if path.exists() else []
