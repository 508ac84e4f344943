"""Attention of well-known code bases: products against the forward pass."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BloomConfig,
    CLIPVisionConfig,
    FalconConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    LlamaConfig,
    Phi3Config,
    T5Config,
)

from matrices import layout_cases
from matrices.attention_cases import HEADS, WIDTH, attention, check_heads, dense, timm
from rankscope.matrices import attentions, products, views


@pytest.mark.parametrize(
    ("inputs", "output", "heads"),
    [
        (["qkv"], "proj", "num_heads"),  # timm
        (["to_qkv"], "to_out.0", "heads"),  # vit-pytorch
        (["to_q", "to_kv"], "to_out", "heads"),
        (["c_attn"], "c_proj", "n_head"),  # nanoGPT
        (["wq", "wk", "wv"], "wo", "n_local_heads"),  # Meta's Llama
        (
            [f"attention.{role}" for role in ("query", "key", "value")],  # an old ViT
            "output.dense",
            "attention.num_attention_heads",
        ),
        (["W_q", "W_k", "W_v"], "W_o", "nh"),
        (["proj_q", "proj_k", "proj_v"], "proj_o", "nh"),
        (["to_queries", "to_keys", "to_values"], "unifyheads", "nh"),
        (["Q", "K", "V"], "out", "nh"),
    ],
)
def test_names_of_projections(inputs: list[str], output: str, heads: str) -> None:
    """One after the other, the input projections have rows for queries, keys and values."""
    units = 5
    rows = {1: [45], 2: [15, 30], 3: [15, 15, 15]}[len(inputs)]
    layers = {path: (WIDTH, size) for path, size in zip(inputs, rows, strict=True)}
    module = attention(layers | {output: (HEADS * units, WIDTH)}, **{heads: HEADS})
    by_name = products(nn.ModuleDict({"attn": module}))
    stored = torch.cat([module.get_submodule(path).weight.detach() for path in inputs])
    q, k, v = stored.reshape(3, HEADS, units, WIDTH)
    o = module.get_submodule(output).weight.detach().reshape(WIDTH, HEADS, units)
    for head in range(HEADS):
        torch.testing.assert_close(dense(by_name[f"attn.h{head}.kq"]), k[head].mT @ q[head])
        torch.testing.assert_close(dense(by_name[f"attn.h{head}.vo"]), o[:, head] @ v[head])


def test_projections_that_no_rule_knows_are_named() -> None:
    """Report three equal layers beside a number of heads; an MLP has no such number."""
    layers = {name: (4, 4) for name in ("ask", "tell", "say")}
    message = "['ask', 'tell', 'say'], names no rule knows"
    assert message in str(views(attention(layers, n_heads=2)).coverage)
    assert "no rule knows" not in str(views(attention(layers)).coverage)


def transformer(config: type[Any], name: str, sizes: dict[str, Any], **options: Any) -> nn.Module:
    """Return attention that gives its probabilities, with zero biases: products have weights only.

    config: class of the model's configuration; the attention is in the module beside it.
    """
    configuration = config(**sizes)
    configuration._attn_implementation = "eager"
    modeling = import_module(config.__module__.replace("configuration", "modeling"))
    module: nn.Module = getattr(modeling, name)(configuration, **options).eval()
    for parameter in module.parameters():
        if parameter.ndim == 1:
            nn.init.zeros_(parameter)
    return module


def unrotated(x: Tensor, head_dim: int) -> dict[str, Any]:
    """Return rotary embeddings (cos, sin) at angle 0, and no mask."""
    angles = torch.ones(1, len(x), head_dim), torch.zeros(1, len(x), head_dim)
    return {"position_embeddings": angles, "attention_mask": None}


def bloom_arguments(x: Tensor) -> dict[str, Any]:
    alibi = torch.zeros(HEADS, 1, len(x))
    return {"residual": torch.zeros(1, len(x), WIDTH), "alibi": alibi, "attention_mask": None}


def llama() -> nn.Module:
    sizes = dict(hidden_size=12, num_attention_heads=6, num_key_value_heads=2, head_dim=4)
    return transformer(LlamaConfig, "LlamaAttention", sizes, layer_idx=0)


def phi3() -> nn.Module:
    sizes = dict(hidden_size=12, num_attention_heads=6, num_key_value_heads=2, pad_token_id=0)
    return transformer(Phi3Config, "Phi3Attention", sizes, layer_idx=0)


def gpt2(**options: bool) -> nn.Module:
    sizes = {"n_embd": 12, "n_head": 3}
    return transformer(GPT2Config, "GPT2Attention", sizes, layer_idx=0, **options)


def big_code(*, multi_query: bool) -> nn.Module:
    sizes = {"n_embd": 12, "n_head": 3, "multi_query": multi_query}
    return transformer(GPTBigCodeConfig, "GPTBigCodeAttention", sizes, layer_idx=0)


def with_heads(config: type[Any], name: str, **options: Any) -> nn.Module:
    return transformer(config, name, {"hidden_size": 12, "num_attention_heads": 3}, **options)


def t5() -> nn.Module:
    return transformer(T5Config, "T5Attention", dict(d_model=12, num_heads=3, d_kv=5), layer_idx=0)


# How each attention is made, and what it takes besides x.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor], dict[str, Any]]]] = {
    "gpt2": (gpt2, lambda x: {}),
    "gpt2_cross": (
        lambda: gpt2(is_cross_attention=True),
        lambda x: {"encoder_hidden_states": x[None]},
    ),
    "neox": (
        lambda: with_heads(GPTNeoXConfig, "GPTNeoXAttention", layer_idx=0),
        lambda x: unrotated(x, 1),
    ),
    "bloom": (lambda: with_heads(BloomConfig, "BloomAttention", layer_idx=0), bloom_arguments),
    "llama": (llama, lambda x: unrotated(x, 4)),
    "phi3": (phi3, lambda x: unrotated(x, 2)),
    "big_code": (lambda: big_code(multi_query=False), lambda x: {}),
    "big_code_multi_query": (lambda: big_code(multi_query=True), lambda x: {}),
    "clip": (lambda: with_heads(CLIPVisionConfig, "CLIPAttention"), lambda x: {}),
    "t5": (t5, lambda x: {}),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("model", MODELS)
def test_transformers(model: str) -> None:
    make, arguments = MODELS[model]
    module, x = make(), torch.randn(5, WIDTH)
    output, *_, probabilities = module(x[None], **arguments(x))
    scale = 1.0 if model == "t5" else None  # T5 does not scale
    by_name = products(nn.ModuleDict({"attn": module}))
    check_heads(by_name, (x, x, x), (output, probabilities), scale=scale)


def test_bert_and_its_sibling_output() -> None:
    module, x = with_heads(BertConfig, "BertAttention"), torch.randn(5, WIDTH)
    mixed, weights = module.self(x[None])
    result = module.output.dense(mixed), weights
    check_heads(products(nn.ModuleDict({"attn": module})), (x, x, x), result)
    matrices = views(nn.ModuleDict({"attn": module}), parts=True)
    assert matrices["attn.h2.k"].part_of == "attn.self.key"


@pytest.mark.parametrize("multi_query", [True, False])
def test_falcon_splits_as_we_do(multi_query: bool) -> None:
    sizes = dict(hidden_size=12, num_attention_heads=3, multi_query=multi_query)
    module = transformer(FalconConfig, "FalconAttention", sizes, layer_idx=0)
    matrices = views(nn.ModuleDict({"attn": module}), parts=True)
    x = torch.randn(5, WIDTH)
    split = module._split_heads(module.query_key_value(x[None]))
    for role, states in zip("qkv", split, strict=True):
        expected = states[0].detach().expand(5, 3, 4)  # (tokens, heads, dim)
        for head in range(3):
            W = matrices[f"attn.h{head}.{role}"].W
            torch.testing.assert_close(x @ W.mT, expected[:, head])


def test_grouped_heads_share_keys() -> None:
    model = nn.ModuleDict({"attn": llama()})
    (grouped,) = attentions(model).values()
    assert (grouped.heads, grouped.kv_heads, grouped.head_dim) == (6, 2, 4)
    assert [grouped.head("k", head).index for head in (2, 3)] == [(("head", 0),), (("head", 1),)]
    how = views(model).coverage["attn.k_proj.weight"].how
    assert how == "Linear: out x in; 6 heads meeting 2 key heads of width 4"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (layout_cases.Temperatures, "a temperature per head"),
        (layout_cases.ChannelAttention, "its scores compare channels, not tokens"),
        (layout_cases.LambdaLayer, "a lambda layer has no scores"),
        (layout_cases.LinearAttention, "linear attention has no scores"),
        (layout_cases.TalkingHeads, "'proj_l' mixes the scores of different heads"),
        (layout_cases.MixingWeights, "'reattn_weights' mixes the scores of different heads"),
    ],
)
def test_attention_without_scores_of_single_heads_is_refused(
    make: Callable[[], nn.Module], reason: str
) -> None:
    model = nn.ModuleDict({"attn": make()})
    assert products(model) == {}
    how = views(model).coverage["attn.qkv.weight"].how
    assert reason in how and "attention_rule.register" in how and "rs.verify" in how


def test_a_convolution_after_the_projections_is_refused() -> None:
    """Short convolutions of keys, and the pooling of MViT."""
    roles = ("q_proj", "k_proj", "v_proj", "o_proj")
    module = attention({role: (WIDTH, WIDTH) for role in roles}, num_heads=HEADS)
    module.k_conv = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH)
    model = nn.ModuleDict({"attn": module})
    assert products(model) == {}
    how = views(model).coverage["attn.q_proj.weight"].how
    assert "'k_conv' stands between projections and scores" in how


def test_wrapped_projections() -> None:
    """A wrapper with one layer is read; an activation beside the layer makes it nonlinear."""
    roles = ("q_proj.linear", "k_proj.linear", "v_proj.linear", "o_proj.linear")
    module = attention({role: (WIDTH, WIDTH) for role in roles}, num_heads=HEADS)
    model = nn.ModuleDict({"attn": module})
    assert len(products(model)) == 2 * HEADS
    module.q_proj.add_module("act", nn.SiLU())
    assert products(model) == {}
    how = views(model).coverage["attn.q_proj.linear.weight"].how
    assert "'attn.q_proj' has an activation" in how


def test_tables_of_position_biases_do_not_mix_heads() -> None:
    module = timm()
    module.relative_attention_bias = nn.Embedding(HEADS, HEADS)
    module.register_parameter("pos_bias", nn.Parameter(torch.zeros(HEADS, HEADS)))
    assert len(products(nn.ModuleDict({"attn": module}))) == 2 * HEADS


THIRD_PARTY_WITHOUT_SCORES = {
    "timm.models.xcit.XCA": dict(dim=12, num_heads=3),
    "timm.models.edgenext.CrossCovarianceAttn": dict(dim=12, num_heads=3),
    "timm.models.davit.ChannelAttention": dict(dim=12, num_heads=3),
    "timm.models.davit.ChannelAttentionV2": dict(dim=12, num_heads=3),
    "timm.models.cait.TalkingHeadAttn": dict(dim=12, num_heads=3),
    "timm.models.mobilevit.LinearSelfAttention": dict(embed_dim=12),
    "timm.models.efficientvit_mit.LiteMLA": dict(in_channels=12, out_channels=12, heads=3, dim=4),
    "timm.layers.lambda_layer.LambdaLayer": dict(dim=16, num_heads=4, dim_head=4, r=3),
    "diffusers.models.attention_processor.SanaMultiscaleLinearAttention": dict(
        in_channels=12, out_channels=12, num_attention_heads=3, attention_head_dim=4
    ),
    "vit_pytorch.xcit.XCAttention": dict(dim=12, heads=3, dim_head=4),
    "vit_pytorch.cait.Attention": dict(dim=12, heads=3, dim_head=4),
    "vit_pytorch.deepvit.Attention": dict(dim=12, heads=3, dim_head=4),
    "x_transformers.x_transformers.Attention": dict(
        dim=12, heads=3, dim_head=4, pre_talking_heads=True
    ),
}


@pytest.mark.parametrize("path", THIRD_PARTY_WITHOUT_SCORES)
def test_third_party_attention_without_scores_is_refused(path: str) -> None:
    package, _, name = path.rpartition(".")
    make = getattr(pytest.importorskip(package), name)
    model = nn.ModuleDict({"attn": make(**THIRD_PARTY_WITHOUT_SCORES[path])})
    assert products(model) == {}


def test_head_counts_are_never_guessed() -> None:
    module = timm()
    del module.num_heads
    module.heads_of_mine = HEADS  # type: ignore[assignment]
    model = nn.ModuleDict({"attn": module})
    assert products(model) == {}
    how = views(model).coverage["attn.qkv.weight"].how
    assert "number of heads is unknown; declare it with attention_rule.register" in how


def test_projections_adapted_by_peft_are_recognised() -> None:
    layers = {name: (WIDTH, WIDTH) for name in ("query.base_layer", "key", "value")}
    model = nn.ModuleDict({"attn": attention(layers, num_attention_heads=HEADS)})
    matrices = views(model, parts=True)
    assert matrices["attn.h0.q"].part_of == "attn.query.base_layer"


def test_linear_attention_by_its_processor() -> None:
    package = pytest.importorskip("diffusers.models.attention_processor")
    linear = package.Attention(
        12, heads=3, dim_head=4, processor=package.SanaLinearAttnProcessor2_0()
    )
    assert products(nn.ModuleDict({"attn": linear})) == {}
    usual = package.Attention(12, heads=3, dim_head=4)
    assert len(products(nn.ModuleDict({"attn": usual}))) == 6
