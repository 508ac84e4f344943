"""Separate projections: shared keys in turn, gates among queries, differential heads."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DiffLlamaConfig, Qwen3NextConfig

from matrices.attention_cases import HEADS, WIDTH, attention, check_forward, dense, tokens
from matrices.layout_cases import InTurn
from matrices.test_recognition import transformer, unrotated
from rankscope.matrices import Manifest, attentions, manifest, products, separate_attention, views


def rotated(head_dim: int) -> Any:
    """Return a call of a Llama-like module with rotary embeddings at angle 0."""

    def call(module: nn.Module, x: Tensor) -> Tensor:
        output: Tensor = module(x[None], **unrotated(x, head_dim))[0]
        return output

    return call


def test_key_heads_in_turn() -> None:
    module = InTurn()
    check_forward(module, tokens, torch.randn(5, WIDTH))
    model = nn.ModuleDict({"attn": module})
    (headed,) = attentions(model).values()
    assert headed.key_heads == (0, 1, 0, 1, 0, 1)
    stored = manifest(model)
    assert Manifest.from_json(stored.to_json()) == stored


@pytest.mark.parametrize("options", [{}, {"kv_heads": 2}, {"one_kv_head": True}])
def test_x_transformers(options: dict[str, Any]) -> None:
    package = pytest.importorskip("x_transformers.x_transformers")
    module = package.Attention(dim=WIDTH, heads=6, dim_head=4, **options).eval()
    check_forward(module, lambda module, x: module(x[None])[0], torch.randn(5, WIDTH))


def test_key_heads_can_be_declared() -> None:
    module = InTurn()
    options = dict(query="to_q", key="to_k", value="to_v", output="to_out", heads=6)
    declared = separate_attention(module, "attn", key_heads=[1, 1, 1, 0, 0, 0], **options)
    assert [declared.head("k", head).index[0][1] for head in range(6)] == [1, 1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match=r"key_heads \[0, 2\], expected 6 numbers below 2"):
        separate_attention(module, "attn", key_heads=[0, 2], **options)


def test_gates_among_queries() -> None:
    sizes = dict(
        hidden_size=12,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        num_hidden_layers=1,
    )
    module = transformer(Qwen3NextConfig, "Qwen3NextAttention", sizes, layer_idx=0)
    module.q_norm, module.k_norm = nn.Identity(), nn.Identity()
    rows = module.q_proj.weight.detach().unflatten(0, (6, 2, 4))
    # A gate of 0 halves what O reads.
    rows[:, 1] = 0
    module.o_proj.weight.data *= 2
    model = nn.ModuleDict({"attn": module})
    before = products(model)
    module.o_proj.weight.data /= 2

    def call(module: nn.Module, x: Tensor) -> Tensor:
        module.o_proj.weight.data *= 2
        output = rotated(4)(module, x)
        module.o_proj.weight.data /= 2
        return output

    check_forward(module, call, torch.randn(5, WIDTH))
    assert len(before) == 12
    how = views(model).coverage["attn.q_proj.weight"].how
    assert how.endswith("queries and gates alternate by head")


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_diffllama(kv_heads: int) -> None:
    """Compare the output with lambda = 0, so that only the first half of the maps counts."""
    sizes = dict(hidden_size=12, num_attention_heads=4, num_key_value_heads=kv_heads, head_dim=4)
    module = transformer(DiffLlamaConfig, "DiffLlamaAttention", sizes, layer_idx=0)
    module.groupnorm = nn.Identity()
    module.lambda_init = 0.0  # lambda = exp(0) - exp(0) + 0
    for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
        nn.init.zeros_(getattr(module, name))
    by_name = products(nn.ModuleDict({"attn": module}))
    kinds = [name.rpartition(".")[2] for name in by_name]
    assert (kinds.count("kq"), kinds.count("vo")) == (4, 2)
    x = torch.randn(5, WIDTH)
    with torch.no_grad():
        output, maps = module(x[None], **unrotated(x, 4))
    for head in range(4):
        logits = x @ dense(by_name[f"attn.h{head}.kq"]).mT @ x.mT / 2
        torch.testing.assert_close(logits.softmax(-1), maps[0, head])
    heads = (maps[0, head] @ x @ dense(by_name[f"attn.h{head}.vo"]).mT for head in range(2))
    torch.testing.assert_close(sum(heads), output[0])


def test_differential_attention_with_twice_the_query_heads() -> None:
    """Microsoft's layout: 2 x heads queries and keys, values of twice their width."""
    roles = ("q_proj", "k_proj", "v_proj", "out_proj")
    module = attention({role: (WIDTH, WIDTH) for role in roles}, num_heads=HEADS, head_dim=2)
    module.lambda_q1 = nn.Parameter(torch.zeros(2))
    (headed,) = attentions(nn.ModuleDict({"attn": module})).values()
    assert (headed.heads, headed.kv_heads, headed.output_heads) == (6, 6, 3)
    assert headed.head("v", 2).m == 4


@pytest.mark.parametrize(
    "names", ["linear_{}", "{}_linear", "{}_head", "project_{}", "fc_{}", "proj_{}"]
)
def test_spellings(names: str) -> None:
    layers = {names.format(role): (WIDTH, WIDTH) for role in "qkv"}
    module = attention(layers | {"linear_out": (WIDTH, WIDTH)}, d_k=WIDTH // HEADS)
    assert len(products(nn.ModuleDict({"attn": module}))) == 2 * HEADS
