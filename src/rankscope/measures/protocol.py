"""Protocol between a tracker and its measures: what they store, when they act, what they compute.

A user declares a `Measure`; in one training it becomes a `Gauge`. A gauge rests until its step is
due. It then sees the window of that step: the forward passes with the weights of the snapshot, the
gradients there, and the optimizer step that leaves them. What it keeps is computed on the tracker's
own thread, and stored with the snapshot.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rankscope.matrices import Attention, Reading, named_tensors
from rankscope.snapshot import Coordinates, Plan
from rankscope.store import Variable

Warn = Callable[[str, str], None]
Keep = Callable[[str, Mapping[str, Tensor]], None]


@dataclass(frozen=True)
class Subject:
    """The training that a gauge is made for.

    warn: gives a warning once; takes a key and the warning.
    """

    model: nn.Module
    plan: Plan
    attentions: tuple[Attention, ...] = ()
    warn: Warn = lambda key, message: None

    @property
    def real(self) -> np.dtype:
        """Dtype of stored numbers: float64 if any weight is, else float32."""
        tensors = named_tensors(self.model).values()
        double = any(tensor.dtype == torch.float64 for tensor in tensors)
        return np.dtype("float64" if double else "float32")

    @property
    def whole(self) -> tuple[Reading, ...]:
        """Readings of whole matrices, which most measures look at."""
        return tuple(reading for reading in self.plan.readings if reading.part_of is None)


@dataclass(frozen=True)
class OptimizerStep:
    """One optimizer's step in the window of a snapshot, in the training thread.

    parameters: the model's parameters that this optimizer holds, by name.
    weights: returns the watched tensors as they are now.
    keep: copies tensors under a name for the worker.
    """

    optimizer: Optimizer
    parameters: Mapping[str, Tensor]
    weights: Callable[[], Mapping[str, Tensor]]
    keep: Keep


@dataclass(frozen=True)
class Moment:
    """Data that a gauge computes from, on the tracker's thread.

    weights: those of the snapshot. reference: those that changes are measured from.
    values: what the snapshot has measured. directions: those the gauges asked for.
    kept: the tensors that this gauge kept in the window. collected: what its `collect` returned.
    """

    step: int
    weights: Mapping[str, Tensor]
    reference: Mapping[str, Tensor] | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    directions: Mapping[str, Tensor] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    collected: Any = None
    threads: int = 1


class Gauge:
    """One measure in one training; a gauge replaces the methods it needs.

    coords, variables: what it adds to the run, as in `store.Writer`.
    directions: number of leading directions it needs of each matrix.
    operations: rough number of operations for one snapshot, its cost.
    facts: what the run says of it, beside the names of its variables.
    follows_optimizer: it needs to see optimizer steps.
    reduces: what it collects is that of this rank until it is `shared`.
    charged: context in which its hooks act; it charges their time to the tracker.
    """

    name = ""
    coords: Coordinates
    variables: Mapping[str, Variable]
    directions: Mapping[str, int]
    operations: float = 0.0
    facts: Mapping[str, Any]
    follows_optimizer = False
    reduces = False
    charged: Callable[[], AbstractContextManager[None]] = nullcontext

    def __init__(self) -> None:
        self.coords, self.variables, self.directions, self.facts = {}, {}, {}, {}

    @property
    def touched(self) -> bool:
        """Whether a forward pass was seen since it was armed."""
        return False

    def arm(self) -> None:
        """Get ready for the forward passes of a window, whose step is due."""

    def disarm(self) -> None:
        """Rest, and forget what was gathered; leave no hook behind."""

    def before_step(self, step: OptimizerStep) -> None:
        """Look at what the optimizer is given: gradients."""

    def after_step(self, step: OptimizerStep) -> None:
        """Look at what the optimizer has done: new weights, its state."""

    def collect(self) -> Any:
        """Return what the forward passes gave, and rest; None if there was none."""

    def shared(self, collected: Any) -> Any:
        """Return what all ranks have collected; a collective that every rank joins."""
        return collected

    def missing(self) -> str:
        """Return one sentence on what this window lacks, or ""."""
        return ""

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        """Return the values of the variables at this snapshot; what is left out is NaN."""
        raise NotImplementedError


@runtime_checkable
class Measure(Protocol):
    """Something to follow beside the weights, such as `rs.Updates()`.

    reduces: its values are those of all ranks together, so every rank makes its tracker.
    """

    @property
    def name(self) -> str:
        """Name under which a run's reader finds it."""

    @property
    def reduces(self) -> bool: ...

    def gauge(self, subject: Subject) -> Gauge: ...


def in_backward() -> bool:
    """Tell whether this thread runs a backward pass, where activations are recomputed."""
    return bool(torch._C._current_graph_task_id() != -1)


def readable(readings: tuple[Reading, ...], *tensors: Mapping[str, Tensor]) -> Iterator[Reading]:
    """Yield the readings whose tensor is in all the mappings, in the shape they read."""
    for reading in readings:
        sizes = [t[reading.parameter].numel() for t in tensors if reading.parameter in t]
        if len(sizes) == len(tensors) and len(set(sizes)) <= 1:
            yield reading
