"""What is learnt: a `Task` is declared, the `Problem` it builds has tensors and a model."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.training.order import Order, SampleOrder

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Place:
    """Where a run is executed; no part of its identity.

    device: "cpu", "cuda", "cuda:1".
    data: the folder with data sets in the hub's layout; None for the hub.
    """

    device: str = "cpu"
    data: Path | None = None


class Shown(NamedTuple):
    """The matrix and the pair that stand for the network in figures of a single one."""

    matrix: str
    pair: str


@runtime_checkable
class Task(Protocol):
    """Data, model and loss as a frozen dataclass."""

    def build(self, place: Place, *, seed: int) -> "Problem":
        """Everything on the device of `place`; split, noise and initial weights follow `seed`."""


class Problem(ABC):
    """A task with its data and its model at initialisation, ready to be trained.

    Nothing here draws from the global generators. `unit` is what an epoch counts ("images").
    """

    model: nn.Module
    samples: int  # of training: an epoch sees each once
    constant_loss: float  # of the best predictor that ignores its input, on the training data
    shown: Shown
    unit: str
    capturable: bool = True  # whether a GPU can replay a step: no waiting for it in `loss`
    ahead: int = 0  # batches drawn in the background while earlier ones are learnt from

    def order(self, batch: int, *, seed: int) -> SampleOrder:
        """Which samples each step sees; `batch` of them, at any seed."""
        return Order(self.samples, batch, seed=seed)

    @abstractmethod
    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        """The training samples `indices` as a batch on the device, or on the CPU.

        Both arguments live on the CPU; so noise is the same on every device. Batches of equal size
        have equal shapes where a GPU is to replay the step as a graph. Where several processes
        train together, each draws its part of a batch with a generator of its own.
        """

    @abstractmethod
    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        """What of a batch the model is called with."""

    @abstractmethod
    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        """Mean loss of the batch. No host synchronisation, so that a GPU can replay it."""

    @abstractmethod
    def fixed(self, samples: int) -> Iterable[Batch]:
        """The same training samples at every call, in batches of nearly equal size.

        At most `samples` of them; noise, if any, is fixed too.
        """

    @abstractmethod
    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """What held-out data says: validation_loss, and validation_accuracy or the like.

        `model` is in eval mode; called without gradients. The same weights give the same numbers.
        """

    @abstractmethod
    def finale(self, model: nn.Module) -> Mapping[str, Any]:
        """What else to keep of the trained model, as plain JSON; {} for nothing."""
