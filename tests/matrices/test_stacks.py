"""Stacks of heads and modules per head against the forward pass."""

import pytest
import torch
from torch import Tensor, nn

from matrices.attention_cases import HEADS, WIDTH, attention_maps, check_forward, dense, tokens
from matrices.layout_cases import Head, ModulePerHead, Stacks
from rankscope.matrices import Manifest, manifest, products, views


def test_stacks() -> None:
    module = Stacks()
    check_forward(module, tokens, torch.randn(5, WIDTH))
    model = nn.ModuleDict({"attn": module})
    matrices = views(model)
    assert matrices["attn.W_Q"].W.shape == (HEADS * 5, WIDTH)
    assert matrices["attn.W_O"].W.shape == (WIDTH, HEADS * 5)
    line = matrices.coverage["attn.W_K"]
    assert (line.status, line.matrices) == ("read", ("attn.W_K",))
    assert line.how == "stack of heads: head*unit x in; 3 heads of width 5"
    assert views(model, parts=True)["attn.h2.v"].part_of == "attn.W_V"


class StoredTransposed(Stacks):
    """Stacks as (head, unit, in) and (head, out, unit), with the output of another width."""

    def __init__(self) -> None:
        super().__init__()
        for key, parameter in list(self.named_parameters()):
            self.register_parameter(key, nn.Parameter(parameter.detach().mT.contiguous()))

    def forward(self, x: Tensor) -> Tensor:
        straight = Stacks()
        straight.load_state_dict({key: p.detach().mT for key, p in self.named_parameters()})
        result: Tensor = straight(x)
        return result


def test_stacks_stored_the_other_way() -> None:
    check_forward(StoredTransposed(), tokens, torch.randn(5, WIDTH))


def test_square_stacks_are_not_guessed() -> None:
    module = Stacks()
    module.n_heads = HEADS
    for role in "QKVO":
        setattr(module, f"W_{role}", nn.Parameter(torch.randn(HEADS, WIDTH, WIDTH)))
    model = nn.ModuleDict({"attn": module})
    assert products(model) == {}


def test_module_per_head() -> None:
    module, x = ModulePerHead(), torch.randn(5, WIDTH)
    model = nn.ModuleDict({"attn": module})
    by_name = products(model)
    assert list(by_name)[:2] == ["attn.heads.0.h0.kq", "attn.heads.0.h0.vo"]
    with attention_maps() as maps, torch.no_grad():
        output = tokens(module, x)
    total = torch.zeros_like(output)
    for head, weights in enumerate(maps[0][0]):
        logits = x @ dense(by_name[f"attn.heads.{head}.h0.kq"]).mT @ x.mT / 2
        torch.testing.assert_close(logits.softmax(-1), weights)
        total += weights @ x @ dense(by_name[f"attn.heads.{head}.h0.vo"]).mT
    torch.testing.assert_close(total, output)
    assert views(model, parts=True)["attn.heads.1.h0.o"].part_of == "attn.proj"
    how = views(model).coverage["attn.heads.1.key.weight"].how
    assert how == "Linear: out x in; 1 head of width 4"
    stored = manifest(model)
    assert Manifest.from_json(stored.to_json()) == stored


def test_a_list_of_heads_without_output_has_no_vo() -> None:
    model = nn.ModuleDict({"heads": nn.ModuleList(Head() for _ in range(2))})
    assert list(products(model)) == ["heads.0.h0.kq", "heads.1.h0.kq"]


def test_heads_that_do_not_fill_the_output_are_refused() -> None:
    module = ModulePerHead()
    module.proj = nn.Linear(WIDTH + 1, WIDTH)
    model = nn.ModuleDict({"attn": module})
    assert products(model) == {}
    with pytest.raises(KeyError):
        views(model)["attn.heads.0.h0.kq"]
