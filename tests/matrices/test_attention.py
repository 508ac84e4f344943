"""Products of heads against the logits and outputs of the module's forward pass."""

import pytest
import torch
from torch import nn

from matrices.attention_cases import HEADS, WIDTH, attention, check_heads, dense, timm
from rankscope.matrices import (
    Attention,
    attention_rule,
    attentions,
    fused_attention,
    products,
    separate_attention,
    views,
)


@pytest.mark.parametrize("widths", [{}, {"kdim": 7, "vdim": 5}], ids=["packed", "unpacked"])
def test_multihead_attention(widths: dict[str, int]) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, **widths)
    model = nn.ModuleDict({"attn": layer})
    names = ["attn.q", "attn.k", "attn.v"] if widths else ["attn.qkv"]
    assert list(views(model)) == [*names, "attn.out_proj"]
    by_name = products(model)
    assert list(by_name)[:3] == ["attn.h0.kq", "attn.h0.vo", "attn.h1.kq"]
    assert by_name["attn.h0.kq"].shape == (layer.kdim, WIDTH)
    assert by_name["attn.h0.kq"].left.shape == (layer.kdim, WIDTH // HEADS)
    inputs = torch.randn(4, WIDTH), torch.randn(6, layer.kdim), torch.randn(6, layer.vdim)
    check_heads(by_name, inputs, layer(*inputs, average_attn_weights=False))


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
    assert matrices["attn.h1.v"].part_of == "attn.qkv"
    assert matrices["attn.h2.o"].part_of == "attn.out_proj"
    shared = layer.in_proj_weight.untyped_storage().data_ptr()
    assert matrices["attn.h1.v"].W.untyped_storage().data_ptr() == shared


def test_products_of_parametrized_attention_are_those_of_the_weight_it_multiplies_by() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True)
    nn.utils.parametrizations.spectral_norm(layer, "in_proj_weight")
    model = nn.ModuleDict({"attn": layer}).eval()
    query, key, _ = layer.in_proj_weight.detach().unflatten(0, (3, HEADS, -1))
    product = products(model)["attn.h1.kq"]
    torch.testing.assert_close(product.left @ product.right.mT, key[1].mT @ query[1])
    assert products(model.train()).keys() == products(model.eval()).keys()
    assert views(model).coverage["attn.bias_k"].status == "vector"


def test_quantized_weights_have_no_products() -> None:
    layer = timm()
    layer.qkv.weight = nn.Parameter(torch.zeros(36, 12, dtype=torch.int8), requires_grad=False)
    model = nn.ModuleDict({"attn": layer})
    assert products(model) == {}
    assert views(model).coverage["attn.qkv.weight"].status == "not read"


class OddAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)


def test_an_attention_without_known_names_says_so_and_can_be_declared() -> None:
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

    attention_rule.register(OddAttention)(lambda module, name: None)  # a rule may refuse
    assert products(model) == {}
    assert views(model).coverage["odd.first.weight"].how == "Linear: out x in"


def test_numbers_of_heads_that_do_not_fit_the_shapes_are_refused() -> None:
    layer = attention({name: (WIDTH, WIDTH) for name in "qkvo"})
    names = dict(query="q", key="k", value="v", output="o")
    assert separate_attention(layer, "attn", head_dim=4, **names).heads == 3
    with pytest.raises(ValueError, match="5 heads and 6 key heads of width 2 do not fit 12 query"):
        separate_attention(layer, "attn", heads=5, **names)
    with pytest.raises(ValueError, match="number of heads is unknown"):
        separate_attention(layer, "attn", **names)
    options = dict(fused="qkv", output="proj", heads=3, head_dim=5, layout="interleaved")
    with pytest.raises(ValueError, match=r"'attn\.qkv' has 36 rows, expected 3 x 3 heads x 5"):
        fused_attention(timm(), "attn", **options)


def test_heads_without_an_output_projection_have_no_vo() -> None:
    module = timm()
    del module.proj
    model = nn.ModuleDict({"attn": module})
    (headed,) = attentions(model).values()
    assert {product.kind for product in headed.products()} == {"kq"}
    with pytest.raises(ValueError, match="'attn' has no output projection"):
        headed.head("o", 0)
    line = views(model).coverage["attn.qkv.weight"]
    assert "no V-O products: no output projection found" in line.how
