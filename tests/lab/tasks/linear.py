"""A network of one matrix, for tasks that classify images."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.lab.training.task import Shown


class Linear(nn.Module):
    def __init__(self, inputs: int, classes: int, seed: int) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(0.1 * torch.randn(classes, inputs, generator=drawn))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T

    def shown(self) -> Shown:
        return Shown("weight", "weight > weight")


@dataclass(frozen=True)
class LinearConfig:
    inputs: int
    classes: int = 10

    def build(self, seed: int) -> Linear:
        return Linear(self.inputs, self.classes, seed)
