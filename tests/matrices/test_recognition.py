"""Attention of well-known code bases: products against the forward pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from matrices import attention_cases as cases
from matrices.attention_cases import WIDTH, Result, zero_biases
from rankscope.matrices import Product, attentions, products, views


def check_heads(
    by_name: dict[str, Product], x: Tensor, result: Result, *, scale: float | None = None
) -> None:
    """Check that K^T Q of each head gives its logits, and O V of all heads the output."""
    output, probabilities = (tensor.detach() for tensor in result)
    probabilities = probabilities.reshape(-1, len(x), len(x))
    total = torch.zeros(len(x), output.shape[-1])
    for head, weights in enumerate(probabilities):
        kq, vo = by_name[f"attn.h{head}.kq"], by_name[f"attn.h{head}.vo"]
        logits = (x @ kq.right) @ (x @ kq.left).mT  # queries x keys
        factor = kq.left.shape[-1] ** -0.5 if scale is None else scale
        torch.testing.assert_close((factor * logits).softmax(-1), weights)
        total += weights @ x @ vo.right @ vo.left.mT
    torch.testing.assert_close(total, output.reshape(total.shape))
    assert len(by_name) == 2 * len(probabilities)


WRITTEN = [
    cases.Timm,
    cases.Lucidrains,
    cases.CrossLucidrains,
    cases.NanoGPT,
    cases.Meta,
    cases.OldHuggingFaceViT,
]


@pytest.mark.parametrize("attention", WRITTEN)
def test_modules_written_out_here(attention: type[nn.Module]) -> None:
    module = attention()
    x = torch.randn(5, WIDTH)
    check_heads(products(nn.ModuleDict({"attn": module})), x, module(x))


@pytest.mark.parametrize(
    "names",
    [
        ("W_q", "W_k", "W_v", "W_o"),
        ("proj_q", "proj_k", "proj_v", "proj_o"),
        ("to_queries", "to_keys", "to_values", "unifyheads"),
        ("Q", "K", "V", "out"),
    ],
)
def test_other_names_of_projections(names: tuple[str, ...]) -> None:
    meta, renamed = cases.Meta(), nn.Module()
    renamed.nh = meta.n_local_heads  # type: ignore[assignment]
    for name, projection in zip(names, (meta.wq, meta.wk, meta.wv, meta.wo), strict=True):
        renamed.add_module(name, projection)
    expected, actual = (products(nn.ModuleDict({"attn": module})) for module in (meta, renamed))
    assert expected.keys() == actual.keys() and len(actual) == 12
    for name, product in expected.items():
        assert torch.equal(actual[name].left, product.left)
        assert torch.equal(actual[name].right, product.right)


def test_projections_that_no_rule_knows_are_named() -> None:
    """Report three equal layers beside a number of heads; an MLP has no such number."""
    mixer, mlp = nn.Module(), nn.Module()
    mixer.n_heads = 2  # type: ignore[assignment]
    for name in ("ask", "tell", "say"):
        mixer.add_module(name, nn.Linear(4, 4))
        mlp.add_module(name, nn.Linear(4, 4))
    assert "['ask', 'tell', 'say'], names no rule knows" in str(views(mixer).coverage)
    assert "no rule knows" not in str(views(mlp).coverage)


def tiny(config: Any, **sizes: Any) -> Any:
    """Return a configuration whose models return attention probabilities."""
    configuration = config(**sizes)
    configuration._attn_implementation = "eager"
    return configuration


def gpt2() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    module = GPT2Attention(tiny(GPT2Config, n_embd=12, n_head=3), layer_idx=0)
    return module, lambda x: module(x[None])


def gpt2_cross() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = tiny(GPT2Config, n_embd=12, n_head=3)
    module = GPT2Attention(config, is_cross_attention=True, layer_idx=0)
    return module, lambda x: module(x[None], encoder_hidden_states=x[None])


def unrotated(x: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of rotary embeddings at angle 0."""
    return torch.ones(1, len(x), head_dim), torch.zeros(1, len(x), head_dim)


def neox() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention

    config = tiny(GPTNeoXConfig, hidden_size=12, num_attention_heads=3)
    module = GPTNeoXAttention(config, layer_idx=0)
    width = module.rotary_ndims
    return module, lambda x: module(x[None], None, position_embeddings=unrotated(x, width))


def bloom() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import BloomConfig
    from transformers.models.bloom.modeling_bloom import BloomAttention

    module = BloomAttention(tiny(BloomConfig, hidden_size=12, n_head=3), layer_idx=0).eval()

    def call(x: Tensor) -> Result:
        nothing = torch.zeros(1, len(x), 12)
        return module(x[None], nothing, torch.zeros(3, 1, len(x)), None)

    return module, call


def llama() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    sizes = dict(hidden_size=12, num_attention_heads=6, num_key_value_heads=2, head_dim=4)
    module = LlamaAttention(tiny(LlamaConfig, **sizes), layer_idx=0)
    return module, lambda x: module(x[None], unrotated(x, 4), None)


def phi3() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import Phi3Config
    from transformers.models.phi3.modeling_phi3 import Phi3Attention

    sizes = dict(hidden_size=12, num_attention_heads=6, num_key_value_heads=2, pad_token_id=0)
    module = Phi3Attention(tiny(Phi3Config, **sizes), layer_idx=0)
    return module, lambda x: module(x[None], unrotated(x, 2), None)


def big_code(multi_query: bool) -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import GPTBigCodeConfig
    from transformers.models.gpt_bigcode.modeling_gpt_bigcode import GPTBigCodeAttention

    config = tiny(GPTBigCodeConfig, n_embd=12, n_head=3, multi_query=multi_query)
    module = GPTBigCodeAttention(config, layer_idx=0).eval()
    return module, lambda x: module(x[None])


def vit() -> tuple[nn.Module, Callable[[Tensor], Result]]:
    from transformers import CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPAttention

    config = tiny(CLIPVisionConfig, hidden_size=12, num_attention_heads=3)
    module = CLIPAttention(config)
    return module, lambda x: module(x[None])


MODELS = {
    "gpt2": gpt2,
    "gpt2_cross": gpt2_cross,
    "neox": neox,
    "bloom": bloom,
    "llama": llama,
    "phi3": phi3,
    "big_code": lambda: big_code(False),
    "big_code_multi_query": lambda: big_code(True),
    "clip": vit,
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("model", MODELS)
def test_transformers(model: str) -> None:
    module, call = MODELS[model]()
    zero_biases(module.eval())
    x = torch.randn(5, WIDTH)
    check_heads(products(nn.ModuleDict({"attn": module})), x, call(x))


def test_t5_does_not_scale() -> None:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = tiny(T5Config, d_model=12, num_heads=3, d_kv=5, is_decoder=False)
    module = T5Attention(config, layer_idx=0).eval()
    x = torch.randn(5, WIDTH)
    output, _, weights = module(x[None])
    check_heads(products(nn.ModuleDict({"attn": module})), x, (output, weights), scale=1.0)


def test_bert_and_its_sibling_output() -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertAttention

    module = BertAttention(tiny(BertConfig, hidden_size=12, num_attention_heads=3)).eval()
    zero_biases(module)
    x = torch.randn(5, WIDTH)
    mixed, weights = module.self(x[None])
    result = module.output.dense(mixed), weights
    check_heads(products(nn.ModuleDict({"attn": module})), x, result)
    matrices = views(nn.ModuleDict({"attn": module}), parts=True)
    assert matrices["attn.h2.k"].part_of == "attn.self.key"


@pytest.mark.parametrize("multi_query", [True, False])
def test_falcon_splits_as_we_do(multi_query: bool) -> None:
    from transformers import FalconConfig
    from transformers.models.falcon.modeling_falcon import FalconAttention

    config = tiny(FalconConfig, hidden_size=12, num_attention_heads=3, multi_query=multi_query)
    module = FalconAttention(config, layer_idx=0)
    matrices = views(nn.ModuleDict({"attn": module}), parts=True)
    x = torch.randn(5, WIDTH)
    split = module._split_heads(module.query_key_value(x[None]))
    for role, states in zip("qkv", split, strict=True):
        expected = states[0].detach().expand(5, 3, 4)  # (tokens, heads, dim)
        for head in range(3):
            W = matrices[f"attn.h{head}.{role}"].W
            torch.testing.assert_close(x @ W.mT, expected[:, head])


def test_grouped_heads_share_keys() -> None:
    module, _ = llama()
    attention = attentions(nn.ModuleDict({"attn": module}))["attn"]
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (6, 2, 4)
    assert [attention.head("k", head).index for head in (2, 3)] == [(("head", 0),), (("head", 1),)]
    how = views(nn.ModuleDict({"attn": module})).coverage["attn.k_proj.weight"].how
    assert how == "Linear: out x in; 6 heads meeting 2 key heads of width 4"


def test_layouts_that_would_be_misread_are_refused() -> None:
    from transformers import CodeGenConfig
    from transformers.models.codegen.modeling_codegen import CodeGenAttention

    config = tiny(CodeGenConfig, n_embd=32, n_head=4, rotary_dim=4)
    model = nn.ModuleDict({"attn": CodeGenAttention(config, layer_idx=0)})
    assert products(model) == {}
    assert "CodeGenAttention" in views(model).coverage["attn.qkv_proj.weight"].how


@pytest.mark.parametrize("attribute", ["num_heads", "heads_of_mine"])
def test_head_counts_are_never_guessed(attribute: str) -> None:
    module = cases.Timm()
    del module.num_heads
    setattr(module, attribute, 3)
    model = nn.ModuleDict({"attn": module})
    how = views(model).coverage["attn.qkv.weight"].how
    known = attribute == "num_heads"
    assert len(products(model)) == (6 if known else 0)
    assert ("number of heads is unknown; declare it with attention_rule.register" in how) != known


def test_projections_adapted_by_peft_are_recognised() -> None:
    module = cases.Inner()
    adapted = nn.Module()
    adapted.base_layer = module.query
    module.query = adapted
    matrices = views(nn.ModuleDict({"attn": module}), parts=True)
    assert matrices["attn.h0.q"].part_of == "attn.query.base_layer"
