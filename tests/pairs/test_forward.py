"""Discovery leaves the model, its gradients and the random numbers as they were."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pairs.networks import TOKENS, Tagger, Written, gpt2
from rankscope.pairs import discover_pairs


class Disturbing(nn.Module):
    """Module whose forward pass changes everything it should not, then fails if told to."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.tensor([0.0, float("nan")]))
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("expanded", torch.zeros(1).expand(3))
        self.fails = fails

    def forward(self, x: Tensor) -> Tensor:
        self.train()
        self.calls += 1
        self.replaced = torch.ones(2)
        y = self.b(self.norm(torch.dropout(self.a(x), 0.5, train=True)))
        y.sum().backward(retain_graph=True)
        if self.fails:
            raise RuntimeError("no\nreason")
        return y


def state(model: nn.Module) -> list[Any]:
    """Return everything that must not change, as comparable data."""
    bits = [
        (name, tensor.detach().contiguous().view(-1).view(torch.uint8).tolist())
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    gradients = [
        (name, tensor.requires_grad, None if tensor.grad is None else tensor.grad.tolist())
        for name, tensor in model.named_parameters()
    ]
    modes = [
        (name, module.training, len(module._forward_hooks))
        for name, module in model.named_modules()
    ]
    return [bits, gradients, modes, torch.get_rng_state().tolist(), torch.is_grad_enabled()]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_changes_even_when_the_forward_pass_fails(fails: bool) -> None:
    model = Disturbing(fails=fails)
    model.norm.eval()
    model.b.weight.requires_grad_(False)
    model.a.weight.grad = torch.full((4, 4), 3.0)
    gradient, buffer = model.a.weight.grad, model.replaced
    before, example = state(model), torch.ones(3, 4)
    if fails:
        with pytest.raises(ValueError, match=r"Disturbing failed .*RuntimeError: no\); pass"):
            discover_pairs(model, example)
    else:
        assert [pair.name for pair in discover_pairs(model, example)] == ["a > b"]
    assert state(model) == before
    assert torch.equal(example, torch.ones(3, 4)) and not example.requires_grad
    assert model.a.weight.grad is gradient
    assert model.replaced is buffer


def test_calls_of_recurrent_modules_are_noted_without_a_trace() -> None:
    model = Tagger(nn.LSTM(6, 4, 2, dropout=0.5)).train()
    before = state(model)
    discover_pairs(model, TOKENS)
    assert state(model) == before


def test_frozen_models_and_callers_without_gradients() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).requires_grad_(False)
    example = torch.ones(3, 4)
    for gradient_mode in (torch.no_grad(), torch.inference_mode()):
        with gradient_mode:
            assert len(discover_pairs(model, example)) == 1


def test_wrappers_are_taken_off() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    expected = discover_pairs(model, torch.ones(3, 4))
    inner = deepcopy(model)
    inner[0].compile(backend="eager")
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for wrapped in (torch.compile(model, backend="eager"), inner, nn.DataParallel(model), averaged):
        assert discover_pairs(wrapped, torch.ones(3, 4)) == expected


def test_models_without_memory() -> None:
    with torch.device("meta"):
        pairs = discover_pairs(gpt2(), torch.zeros(2, 5, dtype=torch.long))
    assert pairs == discover_pairs(gpt2(), TOKENS)


@dataclass
class Result:
    value: Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: {"a": [y]},
        lambda y: (None, (3, y)),
        Result,
        torch.Tensor.sum,
        lambda y: [y.detach(), y],
    ],
)
def test_outputs_of_any_structure(wrap: Callable[[Tensor], object]) -> None:
    model = Written(lambda self, x: wrap(self.b(self.a(x))), a=nn.Linear(4, 3), b=nn.Linear(3, 2))
    assert [pair.name for pair in discover_pairs(model, torch.ones(2, 4))] == ["a > b"]


def test_a_model_that_hides_its_outputs_is_refused() -> None:
    model = Written(lambda self, x: self.a(x).detach(), a=nn.Linear(4, 3))
    with pytest.raises(ValueError, match="no tensor that depends on its parameters"):
        discover_pairs(model, torch.ones(2, 4))


@pytest.mark.gpu
def test_fused_kernels_and_random_numbers_of_a_gpu() -> None:
    """Discovery sees through cuDNN, which runs all layers of an LSTM as one node."""
    model = Tagger(nn.LSTM(6, 4, 2, bidirectional=True, dropout=0.5))
    expected = discover_pairs(model, TOKENS)
    before = torch.cuda.get_rng_state()
    assert discover_pairs(model.cuda(), TOKENS.cuda()) == expected
    assert torch.equal(torch.cuda.get_rng_state(), before)
