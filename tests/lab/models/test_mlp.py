from itertools import pairwise

import pytest
import torch

from rankscope.lab.models.mlp import MlpConfig
from rankscope.pairs import discover_pairs


def images() -> torch.Tensor:
    return torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def test_the_papers_network_has_its_parameters() -> None:
    model = MlpConfig().build(0)
    sizes = (3072, 256, 256, 256, 10)
    want = sum((n + 1) * m for n, m in pairwise(sizes))
    assert sum(p.numel() for p in model.parameters()) == want


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = MlpConfig(inputs=12, hidden=5, classes=3, layers=3).build(0)
    (W1, b1), (W2, b2), (W3, b3) = ((layer.weight, layer.bias) for layer in model.layers)
    x = images().reshape(4, 12)
    x = (x @ W1.T + b1).clamp(min=0)
    x = (x @ W2.T + b2).clamp(min=0)
    torch.testing.assert_close(model(images()), x @ W3.T + b3)


def test_declared_pairs_are_those_of_the_forward_pass() -> None:
    model = MlpConfig(inputs=12, hidden=5).build(0)
    assert model.alignment_pairs() == tuple(discover_pairs(model, images()))
    assert [pair.kind for pair in model.alignment_pairs()] == ["linear"] * 3


def test_impossible_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="3 or more layers"):
        MlpConfig(layers=2)
