"""Layers are drawn as torch draws them by default."""

import pytest
import torch
from torch import nn

from rankscope.lab.models.initialisation import drawn


@pytest.mark.parametrize(
    "construct",
    [
        lambda: nn.Linear(50, 40),
        lambda: nn.Conv2d(8, 16, 3),
        lambda: nn.ConvTranspose2d(8, 32, 3),
        lambda: nn.LSTM(9, 16, bidirectional=True),
    ],
    ids=["linear", "conv", "conv_transpose", "lstm"],
)
def test_layers_are_drawn_as_torch_draws_them(construct: type[nn.Module]) -> None:
    """Uniform with the range of torch's own initial weights."""
    ours = drawn(construct, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = dict(construct().named_parameters())
    for name, parameter in ours.named_parameters():
        if parameter.numel() < 200:  # too few for their largest entry to say much
            continue
        bound = theirs[name].abs().max()
        torch.testing.assert_close(parameter.abs().max(), bound, rtol=0.03, atol=0.0)
        spread = bound.detach() / 3**0.5  # of a uniform distribution
        torch.testing.assert_close(parameter.std(), spread, rtol=0.1, atol=0.0)


def test_norms_start_as_the_identity() -> None:
    network = drawn(lambda: nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3)), 0)
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in network)
    assert (network[0].running_mean == 0).all() and (network[0].running_var == 1).all()
    assert network[0].num_batches_tracked == 0
