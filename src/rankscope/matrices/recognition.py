"""Recognise attention by the names of its projections; head counts come from attributes."""

from collections import Counter
from functools import singledispatch

from torch import nn

from rankscope.matrices.attention import (
    Attention,
    Layout,
    assembled,
    blocks_of,
    fused_attention,
    multihead_attention,
    projection,
    separate_attention,
)
from rankscope.matrices.reading import dotted
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
    ("proj_q", "proj_k", "proj_v"),
    ("queries", "keys", "values"),
    ("to_queries", "to_keys", "to_values"),
)
QUERY_AND_KEY_VALUE = (("q_attn", "c_attn"), ("to_q", "to_kv"), ("q", "kv"))
FUSED = ("qkv", "to_qkv", "qkv_proj", "c_attn", "Wqkv", "query_key_value", "W_pack")
OUTPUT = (
    *("o_proj", "out_proj", "c_proj", "proj", "projection", "to_out"),
    *("dense", "o", "wo", "out", "out_lin", "proj_o", "fc_out", "unify_heads"),
)

# The number of key heads needs no attribute: it is the key projection's rows over the head width.
HEADS = (
    *("num_heads", "n_heads", "n_head", "heads", "num_attention_heads"),
    *("nhead", "n_local_heads", "nh"),
)
HEAD_DIM = (
    *("head_dim", "dim_head", "d_head", "head_size", "attention_head_size"),
    *("key_value_proj_dim", "d_kv"),
)

# Classes whose projections have known names but rows in another order.
REFUSED = {
    "CodeGenAttention": "rows are cut in 4 groups, each q, v, k",
    "MiniMaxLightningAttention": "an activation follows the projection",
}
DECLARE = "declare it with attention_rule.register"


@singledispatch
def attention_rule(module: nn.Module, name: str) -> Attention | None:
    """Return the module as attention; None if it is none or its heads are unknown.

    Register a rule for a class whose projections have other names than those listed here.
    """
    result = recognised(module, name)
    return result if isinstance(result, Attention) else None


attention_rule.register(nn.MultiheadAttention)(multihead_attention)


def why_unknown(module: nn.Module, name: str) -> str | None:
    """Say what is missing in a module that looks like attention but has no registered rule."""
    if attention_rule.dispatch(type(module)) is not attention_rule.dispatch(nn.Module):
        return None
    result = recognised(module, name)
    return f"no per-head products: {result}; {DECLARE}" if isinstance(result, str) else None


def recognised(module: nn.Module, name: str) -> Attention | str | None:
    """Return the attention, a sentence on why something like it cannot be read, or None."""
    classes = {base.__name__ for base in type(module).__mro__}
    for refused in classes & REFUSED.keys():
        return f"{refused}: {REFUSED[refused]}"
    try:
        attention = (
            _fused(module, name, classes) or _separate(module, name) or _siblings(module, name)
        )
    except ValueError as error:
        return str(error)
    return attention or _looks_like_attention(module, name)


def _looks_like_attention(module: nn.Module, name: str) -> str | None:
    """Say that a module looks like attention by its class or its layers; None if it does not."""
    kind = type(module).__name__
    linear = {k: child for k, child in children(module).items() if isinstance(child, nn.Linear)}
    layers = list(linear)
    shapes = Counter((child.out_features, child.in_features) for child in linear.values())
    has_the_name = "attention" in kind.lower() or "attn" in kind.lower()
    equal_layers = max(shapes.values(), default=0)
    has_the_layers = equal_layers >= 3 and attribute(module, HEADS) is not None
    if not layers or not (has_the_name or has_the_layers):
        return None
    return f"attention {name!r} ({kind}) has projections {layers}, names no rule knows"


def _separate(module: nn.Module, name: str, prefix: str = "", output: str = "") -> Attention | None:
    """Recognise three projections in `module`, or in its child `prefix` with the attributes."""
    holder = children(module)[prefix] if prefix else module
    child_names = {plain(child): child for child in holder._modules}
    roles = next(
        (roles for roles in SEPARATE if set(map(plain, roles)) <= child_names.keys()), None
    )
    if roles is None:
        return None
    query, key, value = (dotted(prefix, child_names[plain(role)]) for role in roles)
    return separate_attention(
        module,
        name,
        query=query,
        key=key,
        value=value,
        output=output or _output(module),
        heads=attribute(holder, HEADS),
        head_dim=attribute(holder, HEAD_DIM),
    )


def _siblings(module: nn.Module, name: str) -> Attention | None:
    """Recognise BERT, which has the projections in `self` and the output in `output.dense`."""
    parts = children(module)
    inner = next((key for key in ("self", "attention") if key in parts), None)
    if inner is None or "output" not in parts or "dense" not in parts["output"]._modules:
        return None
    return _separate(module, name, prefix=inner, output="output.dense")


def _fused(module: nn.Module, name: str, classes: set[str]) -> Attention | None:
    for query, fused in QUERY_AND_KEY_VALUE:
        if {query, fused} <= module._modules.keys():
            return _query_and_key_value(module, name, query, fused)
    fused = next((child for child in FUSED if child in module._modules), "")
    if not fused:
        return None
    heads = attribute(module, HEADS)
    if heads is None:
        raise ValueError(f"attention {name!r}: the number of heads is unknown")
    return fused_attention(
        module,
        name,
        fused=fused,
        output=_output(module),
        heads=heads,
        head_dim=attribute(module, HEAD_DIM),
        layout=_layout(module, name, fused, classes),
    )


def _layout(module: nn.Module, name: str, fused: str, classes: set[str]) -> Layout:
    if getattr(module, "new_decoder_architecture", False):  # Falcon 40B
        raise ValueError(f"attention {name!r}: rows of {fused!r} are grouped by key head")
    if getattr(module, "multi_query", False) or getattr(module, "multi_query_attention", False):
        return "blocks"
    by_head = fused == "query_key_value" or "GPTBigCodeAttention" in classes
    return "interleaved" if by_head else "blocks"


def _query_and_key_value(module: nn.Module, name: str, query: str, fused: str) -> Attention:
    """Read cross attention: one projection for queries, one for keys and values."""
    key_value = projection(module, name, fused)
    half = key_value.m // 2
    key, value = blocks_of(key_value, name, {"k": half, "v": half})
    return assembled(
        module,
        name,
        (projection(module, name, query), key, value),
        _output(module),
        heads=attribute(module, HEADS),
        head_dim=attribute(module, HEAD_DIM),
    )


def _output(module: nn.Module) -> str | None:
    return next(
        (
            key
            for key, child in children(module).items()
            if plain(key) in map(plain, OUTPUT) and not isinstance(child, nn.Identity)
        ),
        None,
    )


def plain(name: str) -> str:
    """Return a name without capitals and underscores: "wq" for "W_q"."""
    return name.lower().replace("_", "")


def attribute(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """Return the first whole number under one of the names, in the module or in its config."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if type(value) is int and value > 0:
                return value
    return None
