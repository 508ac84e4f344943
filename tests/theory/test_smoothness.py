"""Kinks that the autograd graph shows, and smooth operations that it must not report."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rankscope.theory.smoothness import kinks
from theory.cases import vector

SLOPE = torch.full((1,), 0.25, dtype=torch.float64)
KINKED = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda z: F.prelu(z, SLOPE),
    "elu": F.elu,
    "selu": F.selu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "abs": torch.abs,
    "clamp": lambda z: z.clamp(min=0),
    "maximum": lambda z: torch.maximum(z, 2 * z),
    "max": lambda z: z.max(),
    "sort": lambda z: z.sort()[0],
    "median": lambda z: z.median(),
    "where": lambda z: torch.where(z > 0, z, 0 * z),
    "max_pool": lambda z: F.max_pool1d(z[None, None], 2),
    "l1_loss": lambda z: F.l1_loss(z, torch.zeros_like(z)),
    "huber_loss": lambda z: F.huber_loss(z, torch.zeros_like(z)),
    "smooth_l1_loss": lambda z: F.smooth_l1_loss(z, torch.zeros_like(z)),
    "multi_margin_loss": lambda z: F.multi_margin_loss(z[None], torch.tensor([0])),
}
SMOOTH = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "softmax": lambda z: z.softmax(0),
    "layer_norm": lambda z: F.layer_norm(z, (3,)),
    "cross_entropy": lambda z: F.cross_entropy(z[None], torch.tensor([0])),
    "logsumexp": lambda z: z.logsumexp(0),
    "square": torch.square,
    "polynomial": lambda z: (z**3 - z) @ z,
}


def value(operation) -> Tensor:
    return operation(vector(0.1, -0.2, 0.3).requires_grad_()).sum() * 2


@pytest.mark.parametrize("name", KINKED)
def test_kinks_are_found(name: str) -> None:
    assert kinks(value(KINKED[name]))


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_operations_have_no_kinks(name: str) -> None:
    assert kinks(value(SMOOTH[name])) == []


def test_each_kink_is_named_once_in_order() -> None:
    assert kinks(value(lambda z: F.relu(z) + F.relu(2 * z) + z.abs())) == ["abs", "relu"]


def test_a_kink_of_constants_does_not_count() -> None:
    assert kinks(value(lambda z: z * F.relu(vector(-1, 0, 1)))) == []
    assert kinks(vector(1, 2).abs().sum()) == []
