"""Layouts of fused projections against the forward pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import CodeGenConfig, FalconConfig

from matrices.attention_cases import HEADS, WIDTH, attention, check_forward, image, timm, tokens
from matrices.layout_cases import Bottleneck, Halo, HeadFirst, HeadWidths
from matrices.test_recognition import transformer, unrotated
from rankscope.matrices import attentions, fused_attention, products, views


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (HeadFirst, tokens),
        (lambda: HeadFirst(head_first=False), tokens),
        (HeadWidths, tokens),
        (Halo, image),
        (Bottleneck, image),
    ],
    ids=["head_first", "qkv_first", "head_widths", "halo", "bottleneck"],
)
def test_layouts(make: Callable[[], nn.Module], call: Callable[..., Tensor]) -> None:
    check_forward(make(), call, torch.randn(4, WIDTH))


TIMM: dict[str, tuple[dict[str, Any], Callable[..., Tensor]]] = {
    "timm.models.maxxvit.AttentionCl": (dict(dim=12, dim_head=4), tokens),
    "timm.models.maxxvit.Attention2d": (dict(dim=12, dim_head=4), image),
    "timm.layers.attention2d.Attention2d": (dict(dim=12, num_heads=3, head_first=True), image),
    "timm.models.efficientformer.Attention": (
        dict(dim=12, key_dim=4, num_heads=3, attn_ratio=2, resolution=2),
        tokens,
    ),
    "timm.layers.halo_attn.HaloAttn": (
        dict(dim=12, num_heads=3, dim_head=8, block_size=2, halo_size=0),
        image,
    ),
    "timm.layers.bottleneck_attn.BottleneckAttn": (
        dict(dim=12, num_heads=3, dim_head=8, feat_size=(2, 2)),
        image,
    ),
    "timm.models.swin_transformer.WindowAttention": (
        dict(dim=12, num_heads=3, window_size=2),
        lambda module, x: module(x[None]),
    ),
}


@pytest.mark.parametrize("path", TIMM)
def test_timm(path: str) -> None:
    package, _, name = path.rpartition(".")
    make = getattr(pytest.importorskip(package), name)
    options, call = TIMM[path]
    module = make(**options)
    module.eval()
    for key, parameter in module.named_parameters():
        if parameter.ndim == 1 or "pos" in key:
            nn.init.zeros_(parameter)
    check_forward(module, call, torch.randn(4, WIDTH))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_falcon_40b(kv_heads: int) -> None:
    sizes = dict(
        hidden_size=12,
        num_attention_heads=6,
        num_kv_heads=kv_heads,
        new_decoder_architecture=True,
    )
    module = transformer(FalconConfig, "FalconAttention", sizes, layer_idx=0)
    model = nn.ModuleDict({"attn": module})
    (grouped,) = attentions(model).values()
    assert (grouped.heads, grouped.kv_heads) == (6, kv_heads)

    def call(module: nn.Module, x: Tensor) -> Tensor:
        options = unrotated(x, 2) | {"attention_mask": torch.zeros(1, 1, len(x), len(x))}
        output: Tensor = module(x[None], alibi=None, **options)[0]
        return output

    check_forward(module, call, torch.randn(5, WIDTH))
    matrices = views(model, parts=True)
    assert matrices["attn.q"].W.shape == (12, 12)
    assert matrices["attn.h5.k"].part_of == "attn.query_key_value"


def test_codegen_cuts_rows_in_four_groups_of_queries_values_and_keys() -> None:
    sizes = dict(n_embd=32, n_head=8, rotary_dim=4, n_positions=8)
    module = transformer(CodeGenConfig, "CodeGenAttention", sizes, layer_idx=0)
    module.embed_positions = torch.cat([torch.zeros(8, 2), torch.ones(8, 2)], dim=-1)

    def call(module: nn.Module, x: Tensor) -> Tensor:
        mask = torch.zeros(1, 1, len(x), len(x))
        positions = torch.arange(len(x))[None]
        output: Tensor = module(x[None], position_ids=positions, attention_mask=mask)[0]
        return output

    check_forward(module, call, torch.randn(5, 32))


def test_two_blocks_are_not_taken_for_shared_keys() -> None:
    """Keys and values alone, under the name qkv, as in timm's GCViT with global queries."""
    layers = {"qkv": (WIDTH, 2 * WIDTH), "proj": (WIDTH, WIDTH)}
    module = attention(layers, num_heads=2, head_dim=6)
    model = nn.ModuleDict({"attn": module})
    assert products(model) == {}
    how = views(model).coverage["attn.qkv.weight"].how
    assert "24 rows fit 2 query and 1 key heads, which no attribute confirms" in how
    module.num_key_value_heads = 1  # type: ignore[assignment]
    assert len(products(model)) == 4


def test_layouts_can_be_declared() -> None:
    """Queries, values and keys of a look-alike in the order that is declared."""
    module = timm()
    attention = fused_attention(
        module, "attn", fused="qkv", output="proj", heads=HEADS, order="vkq"
    )
    blocks = module.qkv.weight.detach().chunk(3)
    for role, block in (("v", blocks[0]), ("k", blocks[1]), ("q", blocks[2])):
        W = attention.head(role, 1).view(module.qkv.weight.detach()).W  # type: ignore[arg-type]
        torch.testing.assert_close(W, block[4:8])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(layout="interleaved", head_dim=4, value_dim=6),
            r"expected 3 heads x \(4 \+ 4 \+ 6\)",
        ),
        (dict(layout="grouped", head_dim=5), "groups of one key and one value head, of width 5"),
        (dict(groups=4, head_dim=4), r"expected 4 groups of 3 x 0\.75 heads x 4"),
        (dict(head_dim=5), "do not fit|not the"),
    ],
)
def test_rows_that_do_not_fit_the_layout_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fused_attention(timm(), "attn", fused="qkv", output="proj", heads=HEADS, **options)


def test_differential_attention_of_timm() -> None:
    """Query heads 2 i and 2 i + 1 share the values of head i."""
    layers = {"qkv": (WIDTH, 3 * WIDTH), "proj": (WIDTH, WIDTH)}
    module = attention(layers, num_heads=3, head_dim=2)
    module.lambda_q1 = nn.Parameter(torch.zeros(2))
    by_name = products(nn.ModuleDict({"attn": module}))
    q, k, v = module.qkv.weight.detach().chunk(3)
    assert [name for name in by_name if name.endswith("vo")] == [f"attn.h{h}.vo" for h in range(3)]
    for head in range(6):
        rows = slice(2 * head, 2 * head + 2)
        kq = by_name[f"attn.h{head}.kq"]
        torch.testing.assert_close(kq.left @ kq.right.mT, k[rows].mT @ q[rows])
    vo = by_name["attn.h1.vo"]
    expected = module.proj.weight.detach()[:, 4:8] @ v[4:8]
    torch.testing.assert_close(vo.left @ vo.right.mT, expected)
