"""Networks drawn from a generator: torch's own initial weights, without its global random state."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

Network = TypeVar("Network", bound=nn.Module)


def undrawn(construct: Callable[[], Network]) -> Network:
    """The network on the CPU, its tensors not yet filled; nothing is drawn at random."""
    with torch.device("meta"):
        network = construct()
    network.to_empty(device="cpu")
    return network


@torch.no_grad()
def draw_defaults(network: nn.Module, generator: torch.Generator) -> None:
    """Fill every layer as torch does by default, in the order of `modules()`.

    Linear and convolution: weight and bias uniform in +-1/sqrt(fan in), which is what torch's
    kaiming_uniform with a = sqrt(5) comes to; LSTM: all uniform in +-1/sqrt(hidden); norms 1 and 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | _ConvNd):
            # torch also takes axis 1 as the inputs of transposed convolutions, where it is outputs.
            _draw_uniform(module, 1 / math.sqrt(module.weight[0].numel()), generator)
        elif isinstance(module, nn.LSTM):
            _draw_uniform(module, 1 / math.sqrt(module.hidden_size), generator)
        elif isinstance(module, _BatchNorm | nn.GroupNorm):
            module.reset_parameters()


def _draw_uniform(module: nn.Module, bound: float, generator: torch.Generator) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.uniform_(-bound, bound, generator=generator)
