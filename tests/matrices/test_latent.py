"""Multi-head latent attention against the forward pass of DeepSeek."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DeepseekV2Config, DeepseekV3Config

import rankscope as rs
from matrices.attention_cases import WIDTH, attention, check_forward
from matrices.test_recognition import transformer, unrotated
from rankscope.matrices import Manifest, manifest, product_change, products, views

SIZES = dict(
    hidden_size=WIDTH,
    num_attention_heads=3,
    num_key_value_heads=3,
    kv_lora_rank=8,
    qk_nope_head_dim=4,
    qk_rope_head_dim=2,
    v_head_dim=5,
)


def deepseek(version: int, q_lora_rank: int | None) -> nn.Module:
    """Return attention without latent norms and with rotary keys of zero."""
    config = DeepseekV2Config if version == 2 else DeepseekV3Config
    sizes = SIZES | {"q_lora_rank": q_lora_rank}
    module = transformer(config, f"DeepseekV{version}Attention", sizes, layer_idx=0)
    module.kv_a_layernorm = nn.Identity()
    if q_lora_rank is not None:
        module.q_a_layernorm = nn.Identity()
    module.kv_a_proj_with_mqa.weight.data[8:] = 0
    return module


@pytest.mark.parametrize("q_lora_rank", [6, None])
@pytest.mark.parametrize("version", [2, 3])
def test_deepseek(version: int, q_lora_rank: int | None) -> None:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        angles: dict[str, Any] = unrotated(x, 2)
        if version == 2:  # rotary embeddings as complex numbers
            angles["position_embeddings"] = torch.ones(1, len(x), 1, dtype=torch.complex64)
        output: Tensor = module(x[None], **angles)[0]
        return output

    module = deepseek(version, q_lora_rank)
    check_forward(module, call, torch.randn(5, WIDTH), scale=6**-0.5)


def test_parts_and_coverage() -> None:
    model = nn.ModuleDict({"attn": deepseek(3, 6)})
    matrices = views(model, parts=True)
    up = model["attn"].kv_b_proj.weight.detach().unflatten(0, (3, 9))
    torch.testing.assert_close(matrices["attn.h1.k"].W, up[1, :4])
    torch.testing.assert_close(matrices["attn.h2.v"].W, up[2, 4:])
    torch.testing.assert_close(
        matrices["attn.latent"].W, model["attn"].kv_a_proj_with_mqa.weight.detach()[:8]
    )
    how = views(model).coverage["attn.kv_b_proj.weight"].how
    assert "without rotary parts and latent norms" in how
    stored = manifest(model)
    assert Manifest.from_json(stored.to_json()) == stored


def test_products_have_the_spectrum_and_the_change_of_the_dense_matrix() -> None:
    model = nn.ModuleDict({"attn": deepseek(3, 6)})
    layer = model["attn"]
    assert {product.shape for product in products(model).values()} == {(WIDTH, WIDTH)}
    before = products(model)["attn.h0.kq"]

    def dense() -> Tensor:
        keys = layer.kv_b_proj.weight[:4].double() @ layer.kv_a_proj_with_mqa.weight[:8].double()
        return keys.mT @ (layer.q_b_proj.weight[:4].double() @ layer.q_a_proj.weight.double())

    with torch.no_grad():
        first = dense()
        layer.q_a_proj.weight += 1e-3
        now = products(model)["attn.h0.kq"]
        torch.testing.assert_close(rs.singular_values(now), torch.linalg.svdvals(dense())[:4])
        change = product_change(now, before)
        torch.testing.assert_close(change.left @ change.right.mT, dense() - first)


def test_latents_of_x_transformers() -> None:
    layers = {"to_latent_q": (12, 6), "to_latent_kv": (12, 7), "to_q": (6, 12), "to_out": (12, 12)}
    layers |= {"to_k": (7, 12), "to_v": (7, 12)}
    module = attention(layers, heads=3)
    by_name = products(nn.ModuleDict({"attn": module}))
    kq = by_name["attn.h0.kq"]
    keys = module.to_k.weight[:4] @ module.to_latent_kv.weight
    queries = module.to_q.weight[:4] @ module.to_latent_q.weight
    expected = (keys.mT @ queries).detach().double()
    torch.testing.assert_close(kq.left @ kq.right.mT, expected, atol=1e-6, rtol=1e-5)
    module.to_rotateable_k = nn.Linear(12, 4)
    assert "some key heads do not come from the latent" in str(views(module).coverage)


def test_widths_that_no_attribute_names_are_not_guessed() -> None:
    layers = {"kv_a_proj_with_mqa": (12, 9), "kv_b_proj": (7, 27), "q_proj": (12, 18)}
    model = attention(layers, num_heads=3)
    assert products(model) == {}
    assert "widths of its latent, are unknown" in str(views(model).coverage)
