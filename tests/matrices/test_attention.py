"""Products of heads against the logits and outputs of the module's forward pass."""

import pytest
import torch
from torch import Tensor, nn

from matrices.attention_cases import HEADS, WIDTH, Timm, linear, zero_biases
from rankscope.matrices import (
    Attention,
    Product,
    attention_rule,
    attentions,
    fused_attention,
    products,
    separate_attention,
    views,
)


def dense(product: Product) -> Tensor:
    return product.left @ product.right.mT


@pytest.mark.parametrize("batch_first", [True, False])
def test_packed_multihead_attention(batch_first: bool) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=batch_first)
    by_name = products(nn.ModuleDict({"attn": layer}))
    assert list(by_name)[:3] == ["attn.h0.kq", "attn.h0.vo", "attn.h1.kq"]
    x = torch.randn(5, WIDTH)
    output, weights = layer(x, x, x, average_attn_weights=False)
    expected = torch.zeros(5, WIDTH)
    for head in range(HEADS):
        logits = x @ dense(by_name[f"attn.h{head}.kq"]).mT @ x.mT / 2  # sqrt(head_dim) = 2
        torch.testing.assert_close(logits.softmax(-1), weights[head])
        expected += weights[head] @ x @ dense(by_name[f"attn.h{head}.vo"]).mT
        assert by_name[f"attn.h{head}.kq"].left.shape == (WIDTH, WIDTH // HEADS)
    torch.testing.assert_close(expected, output)


def test_unpacked_multihead_attention_with_other_widths() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, kdim=7, vdim=5)
    model = nn.ModuleDict({"attn": layer})
    assert list(views(model)) == ["attn.q", "attn.k", "attn.v", "attn.out_proj"]
    by_name = products(model)
    x, keys, values = torch.randn(4, WIDTH), torch.randn(6, 7), torch.randn(6, 5)
    output, weights = layer(x, keys, values, average_attn_weights=False)
    expected = torch.zeros(4, WIDTH)
    for head in range(HEADS):
        assert by_name[f"attn.h{head}.kq"].shape == (7, WIDTH)
        logits = x @ dense(by_name[f"attn.h{head}.kq"]).mT @ keys.mT / 2
        torch.testing.assert_close(logits.softmax(-1), weights[head])
        expected += weights[head] @ values @ dense(by_name[f"attn.h{head}.vo"]).mT
    torch.testing.assert_close(expected, output)


def test_parts_of_packed_attention() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    matrices = views(nn.ModuleDict({"attn": layer}), parts=True)
    q, k, v = layer.in_proj_weight.detach().chunk(3)
    torch.testing.assert_close(matrices["attn.qkv"].W, torch.cat([q, k, v]))
    torch.testing.assert_close(matrices["attn.k"].W, k)
    torch.testing.assert_close(matrices["attn.h1.v"].W, v[4:8])
    torch.testing.assert_close(matrices["attn.h2.o"].W, layer.out_proj.weight.detach()[:, 8:12])
    assert matrices["attn.qkv"].out_axes == (("qkv", 3), ("out", WIDTH))
    assert matrices["attn.k"].out_axes == (("head", 3), ("unit", 4))
    assert (matrices["attn.h1.v"].part_of, matrices["attn.h2.o"].part_of) == (
        "attn.qkv",
        "attn.out_proj",
    )
    shared = layer.in_proj_weight.untyped_storage().data_ptr()
    assert matrices["attn.h1.v"].W.untyped_storage().data_ptr() == shared


def test_extra_keys_of_multihead_attention_are_listed() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True)
    coverage = views(nn.ModuleDict({"attn": layer})).coverage
    assert coverage["attn.bias_k"].status == "flattened"


def test_parametrized_multihead_attention_has_no_products() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    nn.utils.parametrizations.spectral_norm(layer, "in_proj_weight")
    assert products(nn.ModuleDict({"attn": layer})) == {}


def test_quantized_weights_have_no_products() -> None:
    layer = Timm()
    layer.qkv.weight = nn.Parameter(torch.zeros(36, 12, dtype=torch.int8), requires_grad=False)
    model = nn.ModuleDict({"attn": layer})
    assert products(model) == {}
    assert views(model).coverage["attn.qkv.weight"].status == "not read"


def test_an_attention_without_known_names_says_so_and_can_be_declared() -> None:
    class OddAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)

    model = nn.ModuleDict({"odd": OddAttention()})
    line = views(model).coverage["odd.first.weight"]
    assert line.status == "read" and "attention_rule.register" in line.how
    assert products(model) == {}

    @attention_rule.register(OddAttention)
    def _(module: OddAttention, name: str) -> Attention:
        return fused_attention(module, name, fused="first", output="second", heads=HEADS)

    assert len(products(model)) == 2 * HEADS
    values = model["odd"].first.weight.detach()[2 * WIDTH : 2 * WIDTH + 4]
    output = model["odd"].second.weight.detach()[:, :4]
    torch.testing.assert_close(dense(products(model)["odd.h0.vo"]), output @ values)
    assert "register" not in views(model).coverage["odd.first.weight"].how


def test_a_rule_may_refuse_a_module() -> None:
    class NotAttention(Timm):
        pass

    attention_rule.register(NotAttention)(lambda module, name: None)
    model = nn.ModuleDict({"gate": NotAttention()})
    assert products(model) == {}
    assert views(model).coverage["gate.qkv.weight"].how == "Linear: out x in"


def test_numbers_of_heads_that_do_not_fit_the_shapes_are_refused() -> None:
    layer = nn.ModuleDict({name: linear(WIDTH, WIDTH) for name in "qkvo"})
    names = dict(query="q", key="k", value="v", output="o")
    assert separate_attention(layer, "attn", head_dim=4, **names).heads == 3
    with pytest.raises(ValueError, match="5 heads and 6 key heads of width 2 do not fit 12 query"):
        separate_attention(layer, "attn", heads=5, **names)
    with pytest.raises(ValueError, match="number of heads is unknown"):
        separate_attention(layer, "attn", **names)
    fused = nn.ModuleDict({"qkv": linear(WIDTH, 3 * WIDTH), "proj": linear(WIDTH, WIDTH)})
    with pytest.raises(ValueError, match=r"'attn\.qkv' has 36 rows, expected 3 x 3 heads x 5"):
        fused_attention(
            fused, "attn", fused="qkv", output="proj", heads=3, head_dim=5, layout="interleaved"
        )


def test_heads_without_an_output_projection_have_no_vo() -> None:
    model = Timm()
    del model.proj
    attention = attentions(nn.ModuleDict({"attn": zero_biases(model)}))["attn"]
    assert {product.kind for product in attention.products()} == {"kq"}
    with pytest.raises(ValueError, match="'attn' has no output projection"):
        attention.head("o", 0)
    line = views(nn.ModuleDict({"attn": model})).coverage["attn.qkv.weight"]
    assert "no V-O products: no output projection found" in line.how
