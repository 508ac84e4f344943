"""Manifests of models: every tensor with two or more axes has one line of coverage."""

import time

import pytest
import torch
from torch import nn

from rankscope.matrices import Reading, attentions, manifest, view_rule, views


def test_every_tensor_is_listed_once() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 4)
            self.position = nn.Parameter(torch.randn(1, 5, 4))
            self.packed = nn.Parameter(torch.zeros(2, 2, dtype=torch.uint8), requires_grad=False)
            self.register_buffer("mask", torch.ones(5, 5))
            self.out = nn.Linear(3, 4)
            self.out.weight = self.fc.weight

    model = Net()
    matrices = views(model)
    statuses = {line.tensor: line.status for line in matrices.coverage}
    assert statuses == {
        "position": "flattened",
        "packed": "not read",
        "mask": "not read",
        "fc.weight": "read",
        "out.weight": "tied",
    }
    torch.testing.assert_close(matrices["position"].W, model.position.detach()[0])
    assert matrices.coverage["mask"].how == "a buffer, not trained"
    assert matrices.coverage["packed"].how == "uint8 values, not real floating point"
    assert matrices.coverage["out.weight"].how == "tied to fc.weight"
    assert matrices.manifest.ties == {"out.weight": "fc.weight"}
    assert list(matrices) == ["position", "fc"]


def test_shared_modules_are_read_once() -> None:
    layer = nn.MultiheadAttention(4, 2)
    model = nn.ModuleDict({"first": layer, "second": layer})
    assert list(views(model)) == ["first.qkv", "first.out_proj"]
    assert list(attentions(model)) == ["first"]
    assert manifest(model).ties["second.out_proj.weight"] == "first.out_proj.weight"


def test_tied_tensors_keep_the_products_of_both_names() -> None:
    model = nn.ModuleDict({"attn": nn.ModuleDict({name: nn.Linear(4, 4) for name in "qkvo"})})
    model["attn"]["k"].weight = model["attn"]["q"].weight
    model["attn"].num_heads = 2
    matrices = views(model, parts=True)
    torch.testing.assert_close(matrices["attn.h1.k"].W, matrices["attn.h1.q"].W)
    without_alias = {name: t for name, t in model.state_dict().items() if name != "attn.q.weight"}
    again = views(without_alias, like=model, parts=True)
    torch.testing.assert_close(again["attn.h1.q"].W, matrices["attn.h1.q"].W)


def test_two_matrices_of_one_name_are_an_error() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(2, 2))

    @view_rule.register(Twice)
    def _(module: Twice, name: str) -> tuple[Reading, ...]:
        return (Reading("same", f"{name}.a", "x", (("out", 2), ("in", 2)), ("out",), ("in",)),)

    with pytest.raises(ValueError, match=r"'same' is read from both 'one\.a' and 'two\.a'"):
        manifest(nn.ModuleDict({"one": Twice(), "two": Twice()}))


def test_the_model_is_left_alone() -> None:
    model = nn.ModuleDict({"attn": nn.MultiheadAttention(4, 2), "lstm": nn.LSTM(4, 2)})
    before = {name: (id(p), p._version, p.clone()) for name, p in model.named_parameters()}
    state = torch.random.get_rng_state()
    [view.W for view in views(model, parts=True).values()]
    assert torch.equal(state, torch.random.get_rng_state())
    for name, parameter in model.named_parameters():
        identity, version, values = before[name]
        assert (id(parameter), parameter._version) == (identity, version)
        assert torch.equal(parameter, values) and parameter.grad is None


def test_gpt2_small_takes_well_under_a_second() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config())
    started = time.process_time()
    gpt2_manifest = manifest(model)
    assert time.process_time() - started < 0.5
    wholes = [reading for reading in gpt2_manifest.readings if reading.part_of is None]
    assert len(wholes) == 12 * 4 + 2
    assert len(gpt2_manifest.products) == 2 * 144
    assert gpt2_manifest.ties == {"lm_head.weight": "transformer.wte.weight"}
