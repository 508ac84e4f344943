"""Interfaces of tasks: a declared `Task` builds a `Problem` with tensors and a model."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.training.order import Order, SampleOrder
from rankscope.tracker import Probe

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Machine:
    """The device and data folder of a run, which are no part of its identity.

    device: "cpu", "cuda" or "cuda:1", for example.
    data: the folder with data sets in the hub's layout; None for the hub.
    """

    device: str = "cpu"
    data: Path | None = None


class Shown(NamedTuple):
    """The matrix and the pair that figures of a single one show."""

    matrix: str
    pair: str


@runtime_checkable
class Task(Protocol):
    """A frozen dataclass that declares data, model and loss."""

    def build(self, machine: Machine, *, seed: int) -> "Problem":
        """Build the problem on the device of `machine`; `seed` sets split, noise and weights."""


class Problem(ABC):
    """Data and an initialised model, ready for training.

    No method draws from the global generators.
    """

    model: nn.Module
    samples: int  # training samples; an epoch sees each once
    constant_loss: float  # training loss of the best predictor that ignores its input
    shown: Shown
    unit: str  # name of the samples: "images"
    capturable: bool = True  # True if a GPU can replay a step, so `loss` never waits for the GPU
    noise_per_sample: bool = False  # True if a sample's noise is the same in any batch of a step
    ahead: int = 0  # batches drawn in the background while training uses earlier ones
    probe: Probe | None = None  # measures further numbers of the weights at each snapshot

    def order(self, batch: int, *, seed: int) -> SampleOrder:
        """Return the order in which steps see the samples, `batch` at a time."""
        return Order(self.samples, batch, seed=seed)

    @abstractmethod
    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        """Return the training samples `indices` as a batch on the device or on the CPU.

        Both arguments live on the CPU, so noise is the same on every device. If `capturable`,
        batches of equal size must have equal shapes. If several processes train together, each
        draws its part of a batch with its own generator, or with that of a single process if
        `noise_per_sample`.
        """

    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        """Return the arguments with which the model is called for a batch."""
        return batch[:1]

    @abstractmethod
    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        """Mean loss of the batch; it must not synchronise with the host if `capturable`."""

    @abstractmethod
    def fixed(self, samples: int) -> Iterable[Batch]:
        """Return at most `samples` training samples in batches of nearly equal size.

        Every call returns the same samples with the same noise.
        """

    @abstractmethod
    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Measure held-out data: validation_loss, and validation_accuracy or similar.

        `model` is in eval mode, without gradients. The same weights give the same numbers.
        """

    def final_attributes(self, model: nn.Module) -> Mapping[str, Any]:
        """Return further attributes of the trained model to store, as plain JSON."""
        return {}
