"""Declared optimizers. Decay acts on all parameters, including biases and norms."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum, with decay added to the gradient."""

    rate: float
    momentum: float = 0.9
    decay: float = 0.0

    def build(self, parameters: Iterable[nn.Parameter], device: torch.device) -> torch.optim.SGD:
        return torch.optim.SGD(
            parameters,
            lr=_rate(self.rate, device),
            momentum=self.momentum,
            weight_decay=self.decay,
            fused=True,
        )


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled decay: weights shrink by rate x decay at each step."""

    rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.0

    def build(self, parameters: Iterable[nn.Parameter], device: torch.device) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameters,
            lr=_rate(self.rate, device),
            betas=self.betas,
            weight_decay=self.decay,
            fused=True,
            capturable=device.type == "cuda",
        )


Optimizer = Sgd | AdamW


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters.

    A rate that is a tensor is filled in place, since a replayed CUDA graph reads it.
    """
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _rate(rate: float, device: torch.device) -> float | torch.Tensor:
    return torch.tensor(rate, device=device) if device.type == "cuda" else rate
