"""torch's default initial weights, drawn from a given generator."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def draw_defaults(network: nn.Module, generator: torch.Generator) -> None:
    """Fill every layer as torch does by default, in the order of `modules()`.

    Weights and biases of linear layers and convolutions are uniform in +-1/sqrt(fan in), which
    equals torch's kaiming_uniform with a = sqrt(5). Those of an LSTM are uniform in
    +-1/sqrt(hidden). Norms have scale 1 and shift 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | _ConvNd):
            # For transposed convolutions too, torch takes fan in from axis 1, the outputs.
            _draw_uniform(module, 1 / math.sqrt(module.weight[0].numel()), generator)
        elif isinstance(module, nn.LSTM):
            _draw_uniform(module, 1 / math.sqrt(module.hidden_size), generator)
        elif isinstance(module, _BatchNorm | nn.GroupNorm):
            module.reset_parameters()


def _draw_uniform(module: nn.Module, bound: float, generator: torch.Generator) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.uniform_(-bound, bound, generator=generator)


def drawn(
    construct: Callable[[], Network],
    seed: int,
    draw: Callable[[Network, torch.Generator], None] = draw_defaults,
) -> Network:
    """Construct a network on the CPU with weights that `draw` fills from `seed` alone."""
    with torch.device("meta"):
        network = construct()
    network.to_empty(device="cpu")
    draw(network, torch.Generator().manual_seed(seed))
    return network
