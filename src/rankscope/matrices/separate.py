"""Attention with separate projections for queries, keys and values, recognised by their names."""

from dataclasses import replace

from torch import nn

from rankscope.matrices.attention import Attention, assembled
from rankscope.matrices.fused import is_differential
from rankscope.matrices.latent import with_latents
from rankscope.matrices.projection_names import (
    HEAD_DIM,
    HEADS,
    SEPARATE,
    attribute,
    output_name,
    plain,
)
from rankscope.matrices.projections import output_projection, projection
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.wrappers import children


def recognised_separate(module: nn.Module, name: str) -> Attention | None:
    """Recognise three projections in the module, or in the child that BERT calls `self`."""
    if roles := separate_names(module):
        return _separate(module, name, roles, module, output_name(module))
    parts = children(module)
    inner = next((key for key in ("self", "attention") if key in parts), None)
    if inner is None or "output" not in parts or "dense" not in parts["output"]._modules:
        return None
    if roles := separate_names(parts[inner]):
        paths = [dotted(inner, role) for role in roles]
        return _separate(module, name, paths, parts[inner], "output.dense")
    return None


def separate_names(module: nn.Module) -> list[str]:
    """Return the names of the children that are queries, keys and values; empty if not all are."""
    child_names = {plain(child): child for child in children(module)}
    for roles in SEPARATE:
        if set(map(plain, roles)) <= child_names.keys():
            return [child_names[plain(role)] for role in roles]
    return []


def _separate(
    module: nn.Module, name: str, paths: list[str], holder: nn.Module, output_path: str | None
) -> Attention:
    """Assemble the projections at `paths`; the attributes are those of `holder`."""
    query, key, value = (projection(module, name, path) for path in paths)
    output = output_projection(module, name, output_path)
    heads, head_dim = attribute(holder, HEADS), attribute(holder, HEAD_DIM)
    if is_differential(holder) and heads is not None and head_dim is not None:
        return _differential(name, [query, key, value], output, heads, head_dim)
    key_heads = _key_heads(holder, heads)
    note = ""
    if (
        output is not None
        and heads
        and head_dim
        and query.m == 2 * heads * head_dim == 2 * output.n
    ):
        split = query.split("out", (("head", heads), ("gate", 2), ("unit", head_dim)))
        query = split.at("gate", 0, name=dotted(name, "q"), kind="block")
        note = "queries and gates alternate by head"
    attention = assembled(
        name,
        (query, key, value),
        output,
        heads=heads,
        head_dim=head_dim,
        key_heads=key_heads,
    )
    return with_latents(replace(attention, note=note), module)


def _key_heads(module: nn.Module, heads: int | None) -> tuple[int, ...]:
    """Return the key head of each query head where code repeats all key heads in turn.

    x-transformers does: it has `groups` beside `kv_heads`, and leaves the repeating to `attend`.
    """
    kv_heads = attribute(module, ("kv_heads",))
    repeats = "attend" in children(module) and attribute(module, ("groups",)) is not None
    if not repeats or heads is None or kv_heads is None or kv_heads in (1, heads):
        return ()
    return tuple(head % kv_heads for head in range(heads))


def _differential(
    name: str, projections: list[Reading], output: Reading | None, heads: int, head_dim: int
) -> Attention:
    """Assemble differential attention, in which pairs of query heads share values.

    With 2 x heads query heads, value heads have twice their width. With `heads` query heads,
    value heads i and i + half lie side by side (DiffLlama).
    """
    query, key, value = projections
    note = "a norm stands between V and O"
    if query.m == 2 * heads * head_dim:
        value_heads = value.m // (2 * head_dim)
        value = value.split("out", (("head", value_heads), ("unit", 2 * head_dim)))
        query_heads, output_heads = 2 * heads, heads
    else:
        half = value.m // (2 * head_dim)
        split = value.split("out", (("half", 2), ("head", half), ("unit", head_dim)))
        value = replace(
            split,
            name=dotted(name, "v"),
            kind="block",
            outputs=("head", "half", "unit"),
            part_of=split.part_of or split.name,
        )
        query_heads, output_heads = heads, heads // 2
    attention = assembled(
        name,
        (query, key, value),
        output,
        heads=query_heads,
        head_dim=head_dim,
        output_heads=output_heads,
    )
    return replace(attention, note=note)
