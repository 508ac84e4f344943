"""Addition modulo p, learned from a part of the table: a task that networks grok (nanda2023)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from rankscope.lab.models.modular import ModularConfig
from rankscope.lab.training.task import Batch, Machine, Problem


@dataclass(frozen=True)
class ModularAddition:
    """Cross-entropy of (a + b) mod p given a, b, "="; p is the model's.

    train_share: share of the p x p pairs for training, drawn by the seed; the rest validates.
    """

    model: ModularConfig
    train_share: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.samples < self.model.p**2:
            raise ValueError(f"training and validation need at least one pair each, got {self}")

    @property
    def samples(self) -> int:
        """Number of training pairs, which is the size of a full batch."""
        return int(self.train_share * self.model.p**2)

    def build(self, machine: Machine, *, seed: int) -> "ModularProblem":
        return ModularProblem(self, device=torch.device(machine.device), seed=seed)


def table(p: int) -> tuple[Int64[Tensor, "pairs 3"], Int64[Tensor, " pairs"]]:
    """Return all p x p questions a, b, "=" (token p), and their answers."""
    grids = torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij")
    a, b = (grid.flatten() for grid in grids)
    return torch.stack([a, b, torch.full_like(a, p)], dim=1), (a + b) % p


class ModularProblem(Problem):
    """Modular addition with the whole table on the device."""

    unit = "sums"

    def __init__(self, task: ModularAddition, *, device: torch.device, seed: int) -> None:
        model = task.model.build(seed)
        self.model = model.to(device)
        self.shown = model.shown()
        self.samples = task.samples
        self.constant_loss = float(torch.tensor(task.model.p, dtype=torch.float64).log())
        questions, answers = table(task.model.p)
        order = torch.randperm(len(answers), generator=torch.Generator().manual_seed(seed))
        self._train, self._validation = (
            (questions[part].to(device), answers[part].to(device))
            for part in (order[: task.samples], order[task.samples :])
        )

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        chosen = indices.to(self._train[0].device, non_blocking=True)
        return tuple(tensor[chosen] for tensor in self._train)

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        return F.cross_entropy(model(*self.inputs(*batch)).float(), batch[1])

    def fixed(self, samples: int) -> Iterable[Batch]:
        return [tuple(tensor[:samples] for tensor in self._train)]

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Loss and accuracy on held-out pairs, and the accuracy on training pairs."""
        logits = model(*self.inputs(*self._validation)).float()
        return {
            "validation_loss": float(F.cross_entropy(logits, self._validation[1])),
            "validation_accuracy": _accuracy(logits, self._validation[1]),
            "training_accuracy": _accuracy(model(*self.inputs(*self._train)), self._train[1]),
        }


def _accuracy(logits: Float[Tensor, "batch classes"], answers: Int64[Tensor, " batch"]) -> float:
    return float((logits.argmax(1) == answers).double().mean())
