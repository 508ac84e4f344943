"""Models of transformers, from tiny configurations."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.case import Case

WIDTH, HEADS = 32, 4
COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "intermediate_size": 16,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}
T5 = {"d_model": WIDTH, "d_kv": 8, "num_heads": HEADS, "num_layers": 1, "d_ff": 16}
BART = {
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "decoder_start_token_id": 1,
}
VIT = {"image_size": 16, "patch_size": 4}
SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 12, "depths": [2], "num_heads": [3]}
MLA = {
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "num_key_value_heads": HEADS,
    "first_k_dense_replace": 1,
}


def tokens(length: int = 8) -> Tensor:
    return torch.randint(3, 60, (1, length), generator=torch.Generator().manual_seed(0))


def images() -> Tensor:
    return torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def sequences() -> dict[str, Tensor]:
    return {"input_ids": tokens(), "decoder_input_ids": tokens(5)}


def speech() -> dict[str, Tensor]:
    features = torch.randn(1, 8, 20, generator=torch.Generator().manual_seed(0))
    return {"input_features": features, "decoder_input_ids": tokens(5)}


def from_config(kind: str, **settings: Any) -> nn.Module:
    import transformers

    # A model with widths by stage takes none of the common settings.
    common = {} if "depths" in settings else COMMON
    config = transformers.AutoConfig.for_model(kind, **{**common, **settings})
    return transformers.AutoModel.from_config(config)


def case(kind: str, example: Any = tokens, heads: int = HEADS, **settings: Any) -> Case:
    wrong = settings.pop("wrong", False)
    return Case(lambda: from_config(kind, **settings), example, heads, wrong)


# Those that every test run reads.
FEW = {
    "gpt2": case("gpt2"),
    "gpt_neox": case("gpt_neox"),
    "bloom": case("bloom"),
    "falcon": case("falcon"),
    "phi3": case("phi3", **GROUPED),
    "llama": case("llama", **GROUPED),
    "qwen3": case("qwen3", head_dim=8, **GROUPED),
    "t5": case("t5", sequences, 3 * HEADS, **T5),
    "swin": case("swin", images, 6, **SWIN, window_size=4),
    "whisper": case("whisper", speech, 3 * HEADS, **BART, num_mel_bins=8, max_source_positions=10),
    "bert": case("bert"),
    "deepseek_v3": case("deepseek_v3", **MLA),
}
DECODERS = (
    *("gptj", "opt", "mistral", "qwen2", "phi", "olmo", "olmo2", "olmo3", "cohere", "cohere2"),
    *("granite", "glm", "glm4", "stablelm", "starcoder2", "gpt_bigcode", "persimmon", "nemotron"),
    *("smollm3", "helium", "ernie4_5", "exaone4", "arcee", "bitnet", "apertus", "seed_oss"),
    *("biogpt", "openai-gpt", "nanochat", "lfm2", "gemma", "gemma2", "gemma3_text"),
)
ENCODERS = (
    *("roberta", "electra", "distilbert", "deberta-v2", "mpnet", "xlm-roberta", "esm", "roformer"),
    *("megatron-bert", "rembert", "ernie", "data2vec-text", "layoutlm", "modernbert", "big_bird"),
)
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe", "gpt_oss")
TRANSLATORS = ("bart", "pegasus", "marian", "mbart", "blenderbot", "m2m_100", "plbart")
WITH_HEAD_WIDTH = (
    *("glm", "glm4", "smollm3", "helium", "ernie4_5", "seed_oss", "gemma", "gemma2"),
    *("gemma3_text", "qwen3_moe", "gpt_oss"),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "gptj": {"rotary_dim": 4},
    "opt": {"ffn_dim": 16, "word_embed_proj_dim": WIDTH},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 2},
    "lfm2": {"layer_types": ["full_attention"]},
    **{kind: {"head_dim": 8} for kind in WITH_HEAD_WIDTH},
}
MANY = {
    **{kind: case(kind, **{**GROUPED, **SETTINGS.get(kind, {})}) for kind in DECODERS},
    **{kind: case(kind, **SETTINGS.get(kind, {})) for kind in ENCODERS},
    **{kind: case(kind, **{**GROUPED, **EXPERTS, **SETTINGS.get(kind, {})}) for kind in MIXTURES},
    **{kind: case(kind, sequences, 3 * HEADS, **BART) for kind in TRANSLATORS},
    "diffllama": case("diffllama", **GROUPED),
    "deepseek_v2": case("deepseek_v2", **MLA),
    "codegen": case("codegen", rotary_dim=4),
    "mt5": case("mt5", sequences, 3 * HEADS, **T5),
    "umt5": case("umt5", sequences, 3 * HEADS, **T5),
    "albert": case("albert", embedding_size=16),
    "xlm": case("xlm", emb_dim=WIDTH, n_layers=1, n_heads=HEADS),
    "mpt": case("mpt", d_model=WIDTH, n_heads=HEADS, n_layers=1),
    "vit": case("vit", images, **VIT),
    "deit": case("deit", images, **VIT),
    "dinov2": case("dinov2", images, **VIT),
    "swinv2": case("swinv2", images, 6, **SWIN, window_size=4),
}
