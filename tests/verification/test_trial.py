"""Copies of a module compute as it does, without hooks and parametrizations."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from rankscope.verification.trial import bare_copy

PARAMETRIZATIONS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old spectral_norm": spectral_norm,
    "pruning": lambda layer: prune.random_unstructured(layer, "weight", 0.5),
}


@pytest.mark.parametrize("parametrize", PARAMETRIZATIONS.values(), ids=PARAMETRIZATIONS)
def test_a_copy_holds_the_effective_weight(parametrize: Callable[[nn.Module], object]) -> None:
    layer = nn.Linear(5, 4)
    parametrize(layer)
    layer.eval()(torch.zeros(1, 5))
    x = torch.randn(3, 5, dtype=torch.float64)
    duplicate = bare_copy(layer, torch.float64)
    weight = duplicate.get_parameter("weight")
    assert torch.equal(duplicate(x), x @ weight.T + duplicate.get_parameter("bias"))
    torch.testing.assert_close(duplicate(x), layer(x.float()).double(), rtol=1e-5, atol=1e-6)


def test_hooks_see_the_module_and_not_its_copy() -> None:
    calls: list[nn.Module] = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, args, output: calls.append(module))
    bare_copy(layer, None)(torch.zeros(1, 2))
    assert not calls and len(layer._forward_hooks) == 1


def test_a_cached_activation_inside_a_graph_can_be_copied() -> None:
    layer = nn.Linear(2, 2)
    layer.cache = layer(torch.ones(1, 2))
    duplicate = bare_copy(layer, torch.float64)
    assert duplicate.cache.grad_fn is None and layer.cache.grad_fn is not None
