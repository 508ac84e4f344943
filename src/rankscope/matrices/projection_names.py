"""Names of projections and of head counts in the attention of well-known code bases."""

from functools import lru_cache

from torch import nn

from rankscope.matrices.wrappers import children

# Capitals and underscores in names do not count: see `plain`.
SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),  # Llama, OPT, CLIP, GPT-J
    ("query", "key", "value"),  # BERT
    ("q", "k", "v"),  # T5
    ("wq", "wk", "wv"),  # Meta's Llama
    ("to_q", "to_k", "to_v"),  # diffusers
    ("q_lin", "k_lin", "v_lin"),  # DistilBERT
    ("query_proj", "key_proj", "value_proj"),  # DeBERTa
    ("c_q", "c_k", "c_v"),  # nanochat
    ("linear_q", "linear_k", "linear_v"),  # ESPnet, Conformer
    ("q_linear", "k_linear", "v_linear"),
    ("q_head", "k_head", "v_head"),  # Funnel
    ("project_q", "project_k", "project_v"),  # CPM-Ant
    ("projection_query", "projection_key", "projection_value"),  # CvT
    ("proj_q", "proj_k", "proj_v"),
    ("fc_q", "fc_k", "fc_v"),
    ("queries", "keys", "values"),
    ("to_query", "to_key", "to_value"),
    ("to_queries", "to_keys", "to_values"),
)
QUERY_AND_KEY_VALUE = (("q_attn", "c_attn"), ("to_q", "to_kv"), ("q", "kv"), ("q_proj", "kv_proj"))
FUSED = (
    *("qkv", "to_qkv", "qkv_proj", "c_attn", "Wqkv", "query_key_value", "W_pack"),
    *("att_proj", "qkv_linear"),
)
OUTPUT = (
    *("o_proj", "out_proj", "c_proj", "proj", "projection", "to_out", "output_proj"),
    *("dense", "o", "wo", "out", "out_lin", "proj_o", "fc_out", "unify_heads"),
    *("linear_out", "out_linear", "attention_out", "fc_o", "output"),
)

# Separate projections need no number of key heads: it is the rows of keys over the head width.
HEADS = (
    *("num_heads", "n_heads", "n_head", "heads", "num_attention_heads"),
    *("nhead", "n_local_heads", "nh"),
)
KV_HEADS = (
    *("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads", "kv_n_heads"),
    *("num_query_groups", "n_query_groups", "multi_query_group_num", "n_local_kv_heads"),
)
HEAD_DIM = (
    *("head_dim", "dim_head", "d_head", "head_size", "attention_head_size"),
    *("key_value_proj_dim", "d_kv", "d_k"),
)


@lru_cache(maxsize=10_000)
def plain(name: str) -> str:
    """Return a name without capitals and underscores: "wq" for "W_q"."""
    return name.lower().replace("_", "")


def attribute(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """Return the first whole number under one of the names, in the module or in its config."""
    for holder in (module, getattr(module, "config", None), getattr(module, "cfg", None)):
        for name in names:
            value = getattr(holder, name, None)
            if type(value) is int and value > 0:
                return value
    return None


def output_name(module: nn.Module) -> str | None:
    """Return the name of the child that is the output projection; None if there is none."""
    return next(
        (
            key
            for key, child in children(module).items()
            if plain(key) in map(plain, OUTPUT) and not isinstance(child, nn.Identity)
        ),
        None,
    )
