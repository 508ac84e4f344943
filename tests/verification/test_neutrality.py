"""Verifying changes nothing: weights, buffers, hooks, modes, gradients, flags, random numbers."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import rankscope as rs
from verification.attentions import WIDTH, Capped


class Net(nn.Module):
    """Has what a forward pass could disturb: a buffer that counts, dropout, batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.attention = Capped()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.norm(self.embed(x).mT).mT
        return self.attention(nn.functional.dropout(x, 0.5))


def everything(model: nn.Module) -> dict[str, Any]:
    """Return a copy of all that verifying must leave alone."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state: dict[str, Any] = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    state |= {f"{n}.grad": None if p.grad is None else p.grad.clone() for n, p in tensors.items()}
    state["identities"] = {
        name: (id(tensor), tensor.data_ptr()) for name, tensor in tensors.items()
    }
    state["requires_grad"] = {name: tensor.requires_grad for name, tensor in tensors.items()}
    state["modes"] = [part.training for part in model.modules()]
    state["attributes"] = [sorted(vars(part)) for part in model.modules()]
    state["classes"] = [type(part) for part in model.modules()]
    state["hooks"] = [
        [list(hooks.items()) for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        for part in model.modules()
    ]
    state["random"] = torch.get_rng_state()
    cuda = torch.backends.cuda
    state["flags"] = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.backends.mha.get_fastpath_enabled(),
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
    )
    return state


def test_verifying_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Net()
    model.norm.eval()
    model.embed.bias.requires_grad_(False)
    calls: list[nn.Module] = []
    model.attention.inward.register_forward_hook(lambda module, *_: calls.append(module))
    x = torch.randn(2, 5, WIDTH)
    model(x).sum().backward()
    calls.clear()
    before, given = everything(model), x.clone()
    assert rs.verify(model, x)["attention"].status == "verified"
    after = everything(model)
    assert before.keys() == after.keys()
    for name, value in before.items():
        same = torch.equal(value, after[name]) if isinstance(value, Tensor) else None
        assert value == after[name] if same is None else same, name
    assert torch.equal(x, given) and x.grad is None
    assert calls == [model.attention.inward]  # the model ran once


def test_a_failing_forward_pass_changes_nothing() -> None:
    model = Net()
    before = everything(model)
    with pytest.raises(ValueError, match="failed on the example"):
        rs.verify(model, torch.zeros(2, 5, WIDTH + 1))
    after = everything(model)
    for name in ("calls", "random", "norm.running_mean", "embed.parametrizations.weight.0._u"):
        assert torch.equal(before[name], after[name]), name
    for name in ("modes", "hooks", "flags", "requires_grad", "identities"):
        assert before[name] == after[name], name


def test_devices_that_the_model_does_not_use_are_not_seeded(monkeypatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    rs.verify(Net(), torch.randn(2, 5, WIDTH))
    assert not seeds


class Logger:
    """Watches a module, and cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0

    def __call__(self, *call: object) -> None:
        with self.lock:
            self.calls += 1


def test_hooks_need_not_be_copied() -> None:
    model, logger = Net(), Logger()
    for part in model.modules():
        part.register_forward_hook(logger)
    outcomes = rs.verify(model, torch.randn(2, 5, WIDTH))
    assert [line.status for line in outcomes] == ["verified"]
    calls = logger.calls
    model.eval()(torch.randn(2, 5, WIDTH))
    assert logger.calls == 2 * calls  # the model itself was called once
