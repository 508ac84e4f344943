import math

import pytest
import torch

from rankscope.lab.models.modular import ModularConfig
from rankscope.pairs import Pair, discover_pairs

SMALL = ModularConfig(p=5, width=12, heads=3, hidden=7)


def tokens() -> torch.Tensor:
    return torch.tensor([[0, 4, 5], [2, 2, 5], [3, 1, 5]])


def test_the_papers_network_has_its_parameters() -> None:
    p, width, hidden = 113, 128, 512
    embedding, output = (p + 1) * width, (p + 1) * (width + 1)
    attention = (3 * width + width) * (width + 1)
    mlp = hidden * (width + 1) + width * (hidden + 1)
    model = ModularConfig().build(0)
    want = embedding + output + attention + mlp
    assert sum(parameter.numel() for parameter in model.parameters()) == want


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = SMALL.build(0)
    w = dict(model.named_parameters())
    for row, logits in zip(tokens(), model(tokens()), strict=True):
        x = w["embedding.weight"][row] * math.sqrt(12) + model.positions
        q, k, v = (x @ w["block.attn.qkv.weight"].T + w["block.attn.qkv.bias"]).split(12, dim=1)
        mixed = torch.cat(
            [
                (k[:, head] @ q[2, head] / 2).softmax(0) @ v[:, head]
                for head in torch.arange(12).reshape(3, 4)
            ]
        )
        x = x[2] + w["block.attn.out_proj.weight"] @ mixed + w["block.attn.out_proj.bias"]
        hidden = (w["block.w1.weight"] @ x + w["block.w1.bias"]).clamp(min=0)
        x = x + w["block.w2.weight"] @ hidden + w["block.w2.bias"]
        want = w["output.weight"] @ x + w["output.bias"]
        torch.testing.assert_close(logits, want)


def test_initial_weights_have_the_documented_bounds() -> None:
    model = ModularConfig(p=50, width=64, heads=4, hidden=100).build(0)
    bounds = {
        model.embedding.weight: 0.1,
        model.output.weight: 0.1,
        model.block.attn.qkv.weight: math.sqrt(6 / (64 + 192)),
        model.block.attn.out_proj.weight: 1 / 8,
        model.block.w1.weight: 1 / 8,
        model.block.w2.weight: 1 / 10,
    }
    for tensor, bound in bounds.items():
        assert 0.95 * bound <= tensor.abs().max().item() <= bound + 1e-6
    for linear in (model.block.attn.qkv, model.block.attn.out_proj, model.output):
        assert (linear.bias == 0).all()


def key(pair: Pair) -> tuple[object, ...]:
    return pair.earlier, pair.later, pair.earlier_side, pair.later_side, pair.later_cut


def test_declared_pairs_are_those_of_the_forward_pass() -> None:
    model = SMALL.build(0)
    discovered = discover_pairs(model, tokens())
    assert {key(pair) for pair in model.alignment_pairs()} == {key(pair) for pair in discovered}
    assert len(model.alignment_pairs()) == 3 + 5


@pytest.mark.parametrize(
    ("options", "message"), [({"p": 0}, "at least 1"), ({"width": 10, "heads": 4}, "4 heads")]
)
def test_impossible_sizes_are_named(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModularConfig(**options)
