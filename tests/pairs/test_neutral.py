"""Discovery leaves attributes, caches, hooks and every random number as they were."""

import random
from collections import deque
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from rankscope.interventions import truncate
from rankscope.pairs import discover_pairs
from rankscope.pairs.neutral import random_state


class Caching(nn.Module):
    """Module that stores activations wherever it can."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last: Tensor | None = None
        self.listed = [1]
        self.by_name: dict[str, Any] = {"first": 1, "nested": []}
        self.queue = deque([1], maxlen=3)
        self.names = {"a"}
        self.state = SimpleNamespace(cache=None, steps=0)
        self.counter = torch.zeros(2)
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x))
        self.last, self.new = y, y
        self.listed.append(y)
        self.by_name["first"] = y
        self.by_name["nested"].append(y)
        self.by_name["second"] = y
        self.queue.append(y)
        self.names.add("b")
        self.state.cache = self.state.more = y
        self.counter += 1
        np.random.rand()
        torch.rand(1)
        self.b.register_forward_hook(lambda *_: None)
        if self.fails:
            raise RuntimeError
        return y


def state(model: Caching) -> str:
    parts = {
        name: {
            key: value.tolist() if isinstance(value, Tensor) else repr(value)
            for key, value in vars(part).items()
            if key not in ("_parameters", "_buffers", "_modules")
        }
        for name, part in model.named_modules()
    }
    tensors = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    return repr((parts, tensors, np.random.get_state(), torch.get_rng_state().tolist()))


@pytest.mark.parametrize("fails", [False, True])
def test_attributes_caches_hooks_and_random_numbers(fails: bool) -> None:
    model = Caching().train()
    model.fails = fails
    before, listed, counter = state(model), model.listed, model.counter
    if fails:
        with pytest.raises(ValueError, match="forward pass of Caching failed"):
            discover_pairs(model, torch.ones(2, 4))
    else:
        discover_pairs(model, torch.ones(2, 4))
    assert state(model) == before
    assert model.listed is listed and model.counter is counter


def test_a_model_that_caches_can_be_copied_and_truncated() -> None:
    model = Caching()
    discover_pairs(model, torch.ones(2, 4))
    deepcopy(model)
    truncate(model, keep=0.5)


def test_other_work_on_objects_of_the_model_stays() -> None:
    """Another thread may count in an object that the model refers to."""
    model = Caching()

    def work(*_: Any) -> None:
        model.state.steps += 1

    model.register_forward_pre_hook(work)
    discover_pairs(model, torch.ones(2, 4))
    assert model.state.steps == 1


def test_training_goes_on_as_if_nothing_had_happened() -> None:
    weights = []
    for discovers in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(
            weight_norm(nn.Linear(4, 8)), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            if discovers:
                assert discover_pairs(model, torch.ones(5, 4))
            model(torch.randn(5, 4)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights.append(model.state_dict())
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


def test_random_numbers_of_torch_python_and_numpy() -> None:
    def state() -> str:
        return repr((random.getstate(), np.random.get_state(), torch.get_rng_state()))

    before = state()
    with random_state():
        random.random(), np.random.rand(), torch.rand(1)
        assert state() != before
    assert state() == before


def test_a_frozen_dict_is_left_alone() -> None:
    """Configs of diffusers refuse every change, even by nothing."""

    class Frozen(dict[str, int]):
        def update(self, *args: object, **kwargs: object) -> None:
            raise TypeError("frozen")

        __setitem__ = __delitem__ = update

    layer = nn.Linear(2, 3)
    layer.settings = Frozen(width=2)
    discover_pairs(layer, torch.zeros(1, 2))
    assert layer.settings == {"width": 2}
