"""Attention with one projection for queries, keys and values, in the layouts of its rows."""

from typing import Literal

from torch import nn

from rankscope.matrices.attention import Attention, assembled, blocks_of
from rankscope.matrices.projection_names import (
    FUSED,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    QUERY_AND_KEY_VALUE,
    attribute,
    output_name,
)
from rankscope.matrices.projections import output_projection, projection
from rankscope.matrices.reading import Reading, dotted

Layout = Literal["blocks", "interleaved", "grouped"]


def fused_attention(
    module: nn.Module,
    name: str,
    *,
    fused: str,
    output: str | None,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    value_dim: int | None = None,
    layout: Layout = "blocks",
    order: str = "qkv",
    groups: int = 1,
    output_heads: int | None = None,
) -> Attention:
    """Return attention with one projection that holds queries, keys and values.

    Args:
        head_dim, value_dim: widths of a query and of a value head; equal if only one is known.
        layout: order of the rows. "blocks" has all queries, then all keys, then all values.
            "interleaved" has queries, keys and values of one head after another. "grouped" has
            the queries that meet one key head, that key head and its values, then the next.
        order: order of the blocks, such as "qvk".
        groups: number of equal groups of heads; each has blocks of its own (CodeGen has 4).
        output_heads: number of value heads in differential attention.
    """
    whole = projection(module, name, fused)
    output_reading = output_projection(module, name, output)
    query_rows = whole.m // 3 if output_reading is None else output_reading.n
    dim = head_dim or query_rows // heads
    value_dim = value_dim or dim
    if layout == "interleaved":
        blocks = _interleaved(whole, name, heads, dim, value_dim)
    elif layout == "grouped":
        blocks = _grouped(whole, name, heads, dim)
    elif groups > 1:
        blocks = _blocks_in_groups(whole, name, heads, dim, order, groups)
    else:
        kv_heads = kv_heads or (whole.m - heads * dim) // max(dim + value_dim, 1)
        rows = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * value_dim}
        in_order = blocks_of(whole, name, {role: rows[role] for role in order})
        blocks = [in_order[order.index(role)] for role in "qkv"]
    if output_heads is not None:
        width = blocks[2].m // output_heads
        blocks[2] = blocks[2].split("out", (("head", output_heads), ("unit", width)))
    return assembled(
        name,
        blocks,
        output_reading,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        output_heads=output_heads,
    )


def _interleaved(
    whole: Reading, name: str, heads: int, head_dim: int, value_dim: int
) -> list[Reading]:
    if whole.m != heads * (2 * head_dim + value_dim):
        widths = f"3 x {heads} heads x {head_dim}"
        if value_dim != head_dim:
            widths = f"{heads} heads x ({head_dim} + {head_dim} + {value_dim})"
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, expected {widths}"
        )
    if value_dim != head_dim:
        widths_by_role = {"q": head_dim, "k": head_dim, "v": value_dim}
        return windows_of(whole, name, heads, widths_by_role)
    split = whole.split("out", (("head", heads), ("qkv", 3), ("unit", head_dim)))
    return [
        split.at("qkv", i, name=dotted(name, role), kind="block") for i, role in enumerate("qkv")
    ]


def windows_of(whole: Reading, name: str, heads: int, widths: dict[str, int]) -> list[Reading]:
    """Return the parts of a projection whose heads have these parts, one after another."""
    width = sum(widths.values())
    if whole.m != heads * width:
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, "
            f"expected {heads} heads x {width} for {widths}"
        )
    split = whole.split("out", (("head", heads), ("unit", width)))
    parts, start = [], 0
    for role, size in widths.items():
        part = dotted(name, role)
        parts.append(split.window("unit", start, start + size, name=part, kind="block"))
        start += size
    return parts


def _grouped(whole: Reading, name: str, heads: int, head_dim: int) -> list[Reading]:
    """Split rows into (key head, its queries and 2, unit), as Falcon-40B does."""
    kv_heads, left_over = divmod(whole.m - heads * head_dim, 2 * head_dim)
    if left_over or not kv_heads or heads % kv_heads:
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, expected {heads} query heads "
            f"and groups of one key and one value head, of width {head_dim}"
        )
    queries = heads // kv_heads
    by_query = (("group", kv_heads), ("head", queries + 2), ("unit", head_dim))
    by_group = (("head", kv_heads), ("slot", queries + 2), ("unit", head_dim))
    query = whole.split("out", by_query).window(
        "head", 0, queries, name=dotted(name, "q"), kind="block"
    )
    keys_and_values = (
        whole.split("out", by_group).at("slot", slot, name=dotted(name, role), kind="block")
        for role, slot in (("k", queries), ("v", queries + 1))
    )
    return [query, *keys_and_values]


def _blocks_in_groups(
    whole: Reading, name: str, heads: int, head_dim: int, order: str, groups: int
) -> list[Reading]:
    if heads % groups or whole.m != 3 * heads * head_dim:
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, expected {groups} groups of "
            f"3 x {heads / groups:g} heads x {head_dim}"
        )
    axes = (("group", groups), ("qkv", 3), ("head", heads // groups), ("unit", head_dim))
    split = whole.split("out", axes)
    return [
        split.at("qkv", order.index(role), name=dotted(name, role), kind="block") for role in "qkv"
    ]


def recognised_fused(module: nn.Module, name: str) -> Attention | None:
    """Recognise a fused projection by its name, and its layout by attributes."""
    for query, fused in QUERY_AND_KEY_VALUE:
        if {query, fused} <= module._modules.keys():
            return _query_and_key_value(module, name, query, fused)
    fused = next((child for child in FUSED if child in module._modules), "")
    if not fused:
        return None
    heads = attribute(module, HEADS)
    if heads is None:
        raise ValueError(f"attention {name!r}: the number of heads is unknown")
    head_dim, value_dim = head_widths(module)
    # The query heads of differential attention come in pairs.
    query_rows = projection(module, name, fused).m // 3
    pairs = is_differential(module) and head_dim is not None and query_rows == 2 * heads * head_dim
    codegen = has_class(module, "CodeGenAttention")
    attention = fused_attention(
        module,
        name,
        fused=fused,
        output=output_name(module),
        heads=2 * heads if pairs else heads,
        head_dim=head_dim,
        value_dim=value_dim,
        layout=_layout(module, fused),
        order="qvk" if codegen else "qkv",
        groups=4 if codegen else 1,
        output_heads=heads if pairs else None,
    )
    shared = attention.kv_heads != attention.heads and not _is_multi_query(module)
    if shared and attribute(module, KV_HEADS) != attention.kv_heads:
        raise ValueError(
            f"attention {name!r}: {projection(module, name, fused).m} rows fit {heads} query and "
            f"{attention.kv_heads} key heads, which no attribute confirms"
        )
    return attention


def _is_multi_query(module: nn.Module) -> bool:
    flags = ("multi_query", "multi_query_attention", "new_decoder_architecture")
    return any(getattr(module, flag, False) for flag in flags)


def _layout(module: nn.Module, fused: str) -> Layout:
    if getattr(module, "new_decoder_architecture", False):  # Falcon-40B
        return "grouped"
    if _is_multi_query(module):
        return "blocks"
    if fused == "query_key_value" or has_class(module, "GPTBigCodeAttention"):
        return "interleaved"
    # LeViT, EfficientFormer and TinyViT split each head at `key_dim`; timm's MaxViT has a flag.
    by_head = getattr(module, "head_first", False) or attribute(module, ("val_dim",)) is not None
    return "interleaved" if by_head else "blocks"


def head_widths(module: nn.Module) -> tuple[int | None, int | None]:
    """Return the widths of a query and of a value head, where attributes give them."""
    for key_names, value_names in (
        (("key_dim",), ("val_dim",)),
        (("dim_head_qk",), ("dim_head_v",)),
    ):
        key_dim, value_dim = attribute(module, key_names), attribute(module, value_names)
        if key_dim is not None and value_dim is not None:
            return key_dim, value_dim
    return attribute(module, HEAD_DIM), None


def is_differential(module: nn.Module) -> bool:
    """Tell whether two attention maps are subtracted, with a learned weight `lambda`."""
    return any(name in module._parameters for name in ("lambda_q1", "lambda_a"))


def has_class(module: nn.Module, name: str) -> bool:
    """Tell whether a class of this name is among the module's classes."""
    return any(base.__name__ == name for base in type(module).__mro__)


def _query_and_key_value(module: nn.Module, name: str, query: str, fused: str) -> Attention:
    """Read cross attention: one projection for queries, one for keys and values."""
    key_value = projection(module, name, fused)
    heads = attribute(module, HEADS)
    head_dim, value_dim = head_widths(module)
    if heads and head_dim and value_dim:  # HaloAttn of timm has keys and values of each head
        key, value = windows_of(key_value, name, heads, {"k": head_dim, "v": value_dim})
    else:
        half = key_value.m // 2
        key, value = blocks_of(key_value, name, {"k": half, "v": half})
    return assembled(
        name,
        (projection(module, name, query), key, value),
        output_projection(module, name, output_name(module)),
        heads=heads,
        head_dim=head_dim,
    )
