"""A training as a run of an experiment: declared, executed and resumed."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope import store
from rankscope.lab.running.run_key import Progress
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.lab.training.distributed import Alone, Group, current_group
from rankscope.lab.training.evaluation import Evaluation, Truncation
from rankscope.lab.training.execution_context import execution_context
from rankscope.lab.training.head_cuts import HeadCuts
from rankscope.lab.training.loop import End, Loop, Meter
from rankscope.lab.training.optimizers import Optimizer
from rankscope.lab.training.rates import Constant, RateSchedule, total
from rankscope.lab.training.step import (
    GraphedStep,
    Precision,
    StepFunction,
    compiled_loss,
    compiler_at_hand,
    mixed_precision,
    plain_step,
)
from rankscope.lab.training.stopping import Stop
from rankscope.lab.training.task import Machine, Problem, Task
from rankscope.pairs import Pair
from rankscope.tracker import Epochs, Every, LogEpochs, LogSpaced, Tracker


@dataclass(frozen=True)
class TrainingRun:
    """One tracked training, by one process or by several together.

    snapshots: the steps of snapshots, besides the last; an epoch is a declared number of steps.
    batch: samples per optimizer step, in `accumulate` equal parts that processes share.
    clip: largest norm of a gradient.
    precision: of products in training and evaluation; weights are always float32.
    evaluation_samples: training samples on which each snapshot measures the training loss.
    paper_decay: the paper's decay that this run stands for. In a shorter training
        `optimizer.decay` differs from it, to keep sum(rate x decay) about the same.
    changes: also track the products of attention heads, and the change of products and matrices
        since initialisation.
    stop: a condition that ends training before `steps`.
    cuts: low-rank parts of the heads' changes with which the trained network is measured.
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
    stop: Stop | None = None
    cuts: HeadCuts | None = field(default=None, metadata={"later": True})
    machine: Machine = field(default=Machine(), compare=False)

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
        """sum(rate x decay) over training: the total decay applied."""
        return self.optimizer.decay * self.rate_sum

    def with_decay(self, decay: float, *, paper: float) -> "TrainingRun":
        """Return this run with another decay, standing for the paper's decay `paper`."""
        return replace(self, optimizer=replace(self.optimizer, decay=decay), paper_decay=paper)

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        """Train from the checkpoint beside `path`, or from the start, and store the run at `path`.

        If the loss stops being finite, training ends and the store has the attribute
        `diverged_at`. If the loss was never finite, this raises RuntimeError.
        """
        with execution_context(torch.device(self.machine.device)):
            with self.assembled(path, seed=seed, progress=progress) as (loop, first):
                end = loop.advance(first, self.steps)
                speed = loop.meter.speed
            if loop.group.leads:
                if end.why == "diverged":
                    self._require_finite_start(path)
                self._store_attributes(loop, path, seed=seed, speed=speed, end=end)

    @contextmanager
    def assembled(self, path: Path, *, seed: int, progress: Progress) -> Iterator[tuple[Loop, int]]:
        """Yield the loop, with a tracker that writes to `path`, and the step to start at."""
        group, checkpoint = current_group(), Checkpoint(path)
        with group.in_turn():
            problem, optimizer = self._built(group, seed=seed)
            order = problem.order(self.batch, seed=seed)
            first = checkpoint.load(
                problem.model,
                optimizer,
                snapshots=self._snapshots,
                stored=store.open(path)["step"].to_numpy().tolist() if path.exists() else [],
            )
            if first == 0 and group.leads:  # other processes may see an outdated folder
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
        """Remove the checkpoint of a run that is finished, or whose declaration has changed."""
        Checkpoint(path).remove()

    def _parts(self, group: Group) -> int:
        """Number of parts for each process; no part is larger than with one process."""
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
        device = torch.device(self.machine.device)
        problem = self.task.build(self.machine, seed=seed)
        if device.type == "cuda":  # convolutions are faster in this layout
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
            pairs=declared_pairs(problem.model),
            reference="init" if self.changes else None,
            products=self.changes,
            probe=probe,
            resume=True,
            strict=True,
        )

    def _step(
        self, group: Group, problem: Problem, optimizer: torch.optim.Optimizer, tracker: Tracker
    ) -> StepFunction:
        compiled, alone = self._compiled(problem), isinstance(group, Alone)
        step = plain_step(
            group.shared(problem, parts=self._parts(group), compiled=compiled),
            optimizer,
            accumulate=self._parts(group),
            clip=self.clip,
            precision=self.precision,
            loss=compiled_loss(problem) if compiled and alone else None,
        )
        if not self._graphed(group, problem):
            return step
        return GraphedStep(step, problem.model, optimizer, paused=tracker.paused)

    def _graphed(self, group: Group, problem: Problem) -> bool:
        """True if a GPU replays steps as a graph, which cannot hold exchanges of gradients."""
        on_gpu = self.machine.device != "cpu"
        return on_gpu and problem.capturable and isinstance(group, Alone)

    def _compiled(self, problem: Problem) -> bool:
        # Fusing pays for large models, which spend most of a GPU's time outside matrix products.
        fusable: bool = getattr(problem.model, "fusable", False)
        on_gpu = self.machine.device != "cpu"
        return fusable and on_gpu and problem.capturable and compiler_at_hand()

    def _require_finite_start(self, path: Path) -> None:
        loss = float(store.open(path)["training_loss"][0])
        if not math.isfinite(loss):
            self.forget(path)
            raise RuntimeError(
                f"the loss of the untrained network is {loss}; look for values that are not finite "
                "in the data, or try another precision or device"
            )

    def _store_attributes(
        self, loop: Loop, path: Path, *, seed: int, speed: float, end: End
    ) -> None:
        problem = loop.problem
        attributes: dict[str, Any] = {
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
            "compiled": self._compiled(problem),
            "parameters": sum(tensor.numel() for tensor in problem.model.parameters()),
        }
        if end.why != "diverged":
            with torch.no_grad():
                attributes |= problem.final_attributes(problem.model.eval())
                attributes |= self._measured_cuts(problem, seed=seed)
        with store.Writer.resume(path) as writer:
            writer.set_attrs(attributes)

    def _measured_cuts(self, problem: Problem, *, seed: int) -> dict[str, Any]:
        if self.cuts is None:
            return {}
        # The initial network is drawn again, since a resumed training began elsewhere.
        initial = self.task.build(self.machine, seed=seed).model
        with mixed_precision(torch.device(self.machine.device), self.precision):
            return self.cuts.measure(problem, initial.eval())


@dataclass(frozen=True)
class WithLast:
    """A schedule that also includes the last step."""

    schedule: Epochs | Every | LogEpochs | LogSpaced
    last: int

    def __call__(self, step: int) -> bool:
        return step == self.last or self.schedule(step)


def declared_pairs(model: nn.Module) -> tuple[Pair, ...]:
    """Return the pairs that a model declares; a convolutional one may add those of other taps."""
    declaring: Any = model
    taps = declaring.tap_pairs() if hasattr(model, "tap_pairs") else ()
    return (*declaring.alignment_pairs(), *taps)


def require_one_start(firsts: list[int], path: Path) -> None:
    if len(set(firsts)) > 1:
        raise ValueError(
            f"processes would start {path.name} at different steps, {', '.join(map(str, firsts))}; "
            f"{path.parent} has to be one folder, on a file system that all of them see"
        )
