"""Attention recognised by the names of its projections; head counts come from attributes."""

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
from rankscope.matrices.wrappers import children

# In names capitals and underscores do not count: see `plain`.
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

# Key heads need no attribute: their number is the rows of the key projection over the head width.
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
    """The module as attention, or None where it is none or its heads are unknown."""
    found = recognised(module, name)
    return found if isinstance(found, Attention) else None


attention_rule.register(nn.MultiheadAttention)(multihead_attention)


def why_unknown(module: nn.Module, name: str) -> str | None:
    """What is missing in a module that looks like attention and that no rule was registered for."""
    if attention_rule.dispatch(type(module)) is not attention_rule.dispatch(nn.Module):
        return None
    found = recognised(module, name)
    return f"no per-head products: {found}; {DECLARE}" if isinstance(found, str) else None


def recognised(module: nn.Module, name: str) -> Attention | str | None:
    """The attention, or a sentence on why a module that looks like it cannot be read, or None."""
    classes = {base.__name__ for base in type(module).__mro__}
    for refused in classes & REFUSED.keys():
        return f"{refused}: {REFUSED[refused]}"
    try:
        found = _fused(module, name, classes) or _separate(module, name) or _siblings(module, name)
    except ValueError as error:
        return str(error)
    return found or _looks_like_attention(module, name)


def _looks_like_attention(module: nn.Module, name: str) -> str | None:
    kind = type(module).__name__
    linear = {k: child for k, child in children(module).items() if isinstance(child, nn.Linear)}
    layers, shapes = list(linear), Counter(child.weight.shape for child in linear.values())
    named = "attention" in kind.lower() or "attn" in kind.lower()
    alike = max(shapes.values(), default=0) >= 3 and attribute(module, HEADS) is not None
    if not layers or not (named or alike):
        return None
    return f"attention {name!r} ({kind}) has projections {layers}, names no rule knows"


def _separate(module: nn.Module, name: str, prefix: str = "", output: str = "") -> Attention | None:
    """Three projections, in `module` or in its child `prefix`, where the attributes are too."""
    holder = children(module)[prefix] if prefix else module
    written = {plain(child): child for child in holder._modules}
    names = next((names for names in SEPARATE if set(map(plain, names)) <= written.keys()), None)
    if names is None:
        return None
    found = (written[plain(each)] for each in names)
    query, key, value = (f"{prefix}.{child}" if prefix else child for child in found)
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
    """BERT keeps the projections in `self` and the output in `output.dense`."""
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
    """Cross attention: one projection for queries, one for keys and values."""
    both = projection(module, name, fused)
    key, value = blocks_of(both, name, {"k": both.m // 2, "v": both.m // 2})
    output = _output(module)
    return assembled(
        name,
        (projection(module, name, query), key, value),
        None if output is None else projection(module, name, output),
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
    """ "wq" of "W_q"."""
    return name.lower().replace("_", "")


def attribute(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first whole number under one of the names, in the module or else in its config."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if type(value) is int and value > 0:
                return value
    return None
