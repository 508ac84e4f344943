"""The fully connected network of yunis2024 (app. B, fig. 7), for true and random labels."""

from dataclasses import dataclass
from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lab.models.initialisation import drawn
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair


@dataclass(frozen=True)
class MlpConfig:
    """`layers` linear layers with biases and ReLU between them, with torch's default weights.

    The defaults are the paper's: 3072-256-256-256-10.
    """

    inputs: int = 3072
    hidden: int = 256
    classes: int = 10
    layers: int = 4

    def __post_init__(self) -> None:
        if min(self.inputs, self.hidden, self.classes) < 1 or self.layers < 3:
            raise ValueError(f"an MLP needs sizes of 1 or more and 3 or more layers, got {self}")

    def build(self, seed: int) -> "Mlp":
        return drawn(lambda: Mlp(self), seed)


class Mlp(nn.Module):
    """A network from images, which it flattens, to logits; layers layers.0, layers.1, ..."""

    def __init__(self, config: MlpConfig) -> None:
        super().__init__()
        self.config = config
        middle = [config.hidden] * (config.layers - 1)
        sizes = [config.inputs, *middle, config.classes]
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(sizes))

    def forward(self, images: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
        x = images.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """Pairs of each layer with the next."""
        return tuple(Pair(f"layers.{i}", f"layers.{i + 1}") for i in range(self.config.layers - 1))

    def shown(self) -> Shown:
        """A middle layer, and its pair with the next."""
        middle = (self.config.layers - 1) // 2
        return Shown(f"layers.{middle}", f"layers.{middle} > layers.{middle + 1}")
