"""A task that trains in a blink: which of two Gaussian clouds a point is from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.lab.training.order import generator
from rankscope.lab.training.task import Batch, Machine, Problem, Shown
from rankscope.pairs import Pair
from rankscope.pairs.pair import block_cut


class Net(nn.Module):
    """Convolution, BatchNorm, convolution, head: 1x4x4 images to 2 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 5, 3, padding=1)
        self.head = nn.Linear(5, 2)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv1(images)))
        out: Tensor = self.head(F.relu(self.conv2(x)).mean((2, 3)))
        return out

    def alignment_pairs(self) -> tuple[Pair, ...]:
        cut = block_cut(0, 6, 6, taps=(3, 3))
        return (Pair("conv1", "conv2", kind="conv", later_cut=cut), Pair("conv2", "head"))


class Clouds(Problem):
    samples = 60
    shown = Shown("conv2", "conv1 > conv2")
    unit = "images"

    def __init__(
        self, seed: int, *, noisy: bool = True, explode_below: float = 0.0, device: str = "cpu"
    ) -> None:
        drawn = generator(seed, "data")
        self.labels = torch.arange(80) % 2
        signs = 2.0 * self.labels[:, None, None, None] - 1
        self.images = signs + torch.randn(80, 1, 4, 4, generator=drawn)
        self.model = Net()
        weights = generator(seed, "weights")
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.uniform_(-0.4, 0.4, generator=weights)
        self.model.to(device)
        self.images, self.labels = self.images.to(device), self.labels.to(device)
        self.constant_loss = float(torch.tensor(2.0).log())
        self.noisy = noisy
        self.explode_below = explode_below

    def draw(self, indices: Tensor, drawn: torch.Generator) -> Batch:
        chosen = indices.to(self.images.device)
        images = self.images[chosen]
        if self.noisy:
            noise = 0.1 * torch.randn(images.shape, generator=drawn)
            images = images + noise.to(images.device)
        return images, self.labels[chosen]

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(model(images), labels)
        return loss / (loss >= self.explode_below)  # x / 0 where it is to explode

    def fixed(self, samples: int) -> Iterator[Batch]:
        for start in range(0, min(samples, self.samples), 20):
            chosen = slice(start, min(start + 20, samples, self.samples))
            yield self.images[chosen], self.labels[chosen]

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        scores, labels = model(self.images[60:]), self.labels[60:]
        return {
            "validation_loss": float(F.cross_entropy(scores, labels)),
            "validation_accuracy": float((scores.argmax(1) == labels).double().mean()),
        }

    def final_attributes(self, model: nn.Module) -> Mapping[str, Any]:
        return {"last_bias": model.head.bias.tolist()}


@dataclass(frozen=True)
class CloudTask:
    noisy: bool = True
    explode_below: float = 0.0
    capturable: bool = True

    def build(self, machine: Machine, *, seed: int) -> Clouds:
        problem = Clouds(
            seed, noisy=self.noisy, explode_below=self.explode_below, device=machine.device
        )
        problem.capturable = self.capturable
        return problem


def silent(fraction: float, note: str = "") -> None:
    """Report no progress."""
