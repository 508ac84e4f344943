"""Plain names of matrices: "blocks.3.attention.q" is "queries, layer 4".

Layers and heads are counted from 1; a bare number keeps its own count: "0" is
"matrix 0". Names that no rule knows stay as they are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

ROLES = {
    "queries": ("q", "q_proj", "query", "wq", "to_q", "q_lin"),
    "keys": ("k", "k_proj", "key", "wk", "to_k", "k_lin"),
    "values": ("v", "v_proj", "value", "wv", "to_v", "v_lin"),
    "queries, keys, values": ("qkv", "c_attn", "in_proj", "query_key_value", "qkv_proj", "wqkv"),
    "attention output": ("o", "out_proj", "o_proj", "wo", "to_out"),
    "MLP in": ("w1", "fc1", "up_proj", "c_fc", "dense_h_to_4h", "linear1"),
    "MLP out": ("w2", "fc2", "down_proj", "dense_4h_to_h", "linear2"),
    "MLP gate": ("w3", "gate_proj"),
    "embedding": ("embedding", "embed", "embed_tokens", "wte", "tok_embeddings"),
    "positions": ("position", "positions", "wpe", "pos_embed", "position_embeddings"),
    "patches": ("patches", "patch_embed"),
    "output": ("output", "lm_head", "head", "classifier"),
    "input": ("ih", "weight_ih"),
    "recurrent": ("hh", "weight_hh"),
    "K-Q": ("kq",),
    "V-O": ("vo",),
    "LoRA": ("lora",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
# Stems of names such as "conv7", which are counted from 1 already.
NUMBERED = {
    "conv": "convolution",
    "tconv": "up-convolution",
    "dense": "dense layer",
    "up_dense": "dense layer, up",
    "fc": "layer",
    "linear": "layer",
    "layer": "layer",
}
HEAD = re.compile(r"h(?:ead)?s?\.?(\d+)")
COUNTED = re.compile(r"([A-Za-z_]+?)(\d+)")
REVERSE = "reverse"


@dataclass(frozen=True)
class PlainName:
    """The words for one matrix.

    role: what it does, "queries"; the same for all layers. block: the layer it belongs to.
    depth: number of the block in the order of the model. head: its attention head, from 1, if any.
    """

    label: str
    role: str
    block: str
    depth: int
    head: int | None


def plain_names(names: Sequence[str]) -> list[PlainName]:
    """Return the words for each name."""
    blocks = [_block(name) for name in names]
    stems = {block.rpartition(".")[0] for block in blocks if block}
    order: dict[str, int] = {}
    for block, name in zip(blocks, names, strict=True):
        order.setdefault(block or name, len(order))
    return [
        _plain(name, block, order[block or name], several=len(stems) > 1)
        for name, block in zip(names, blocks, strict=True)
    ]


def plain_title(name: str) -> str:
    """Return "matrix 0" for the bare number that a matrix of nn.Sequential has, else the name."""
    return f"matrix {name}" if name.isdecimal() else name


def plain_pairs(earlier: Sequence[str], later: Sequence[str]) -> list[PlainName]:
    """Return the words for each pair of matrices."""
    both = plain_names([*earlier, *later])
    pairs = zip(both[: len(earlier)], both[len(earlier) :], strict=True)
    return [_pair(first, second) for first, second in pairs]


def _pair(first: PlainName, second: PlainName) -> PlainName:
    role = f"{first.role} > {second.role}"
    head = first.head if first.head == second.head else None
    if first.block == second.block and first.role != second.role:
        label = f"{role}{_where(first.block, head)}"
    else:
        label = f"{first.label} > {second.label}"
    return PlainName(label, role, first.block, first.depth, head)


def _block(name: str) -> str:
    """Return the name up to its first number; "" if it has none, or begins with a known word."""
    parts = name.split(".")
    for position, part in enumerate(parts):
        counted = re.fullmatch(r"[a-z]{1,2}\d+", part) and part not in ROLE_OF
        if (part.isdecimal() or counted) and not HEAD.fullmatch(part):
            return ".".join(parts[: position + 1])
    return ""


def _plain(name: str, block: str, depth: int, *, several: bool) -> PlainName:
    if name.isdecimal():
        return PlainName(plain_title(name), "matrix", plain_title(name), depth, None)
    if not block:
        return _without_layer(name, depth)
    parts = name[len(block) :].strip(".").split(".")
    number = int(re.sub(r"\D", "", block.rpartition(".")[2])) + 1
    stem = block.rpartition(".")[0]
    layer = f"{stem.partition('.')[0]} layer {number}" if several and stem else f"layer {number}"
    if parts in ([""], ["weight"]):
        return PlainName(layer, "layer", layer, depth, None)
    head, known = _head(parts), ROLE_OF.get(parts[-1].lower())
    role = known or re.sub(r"\d+$", "", parts[-1]) or parts[-1]
    inside = "" if known else "".join(f"{part}." for part in parts[:-1])
    if known and REVERSE in parts[:-1]:
        role = f"{role}, backward"
    return PlainName(f"{inside}{role}{_where(layer, head)}", role, layer, depth, head)


def _without_layer(name: str, depth: int) -> PlainName:
    """Return the words for a name without the number of a layer."""
    parts = name.split(".")
    head, known = _head(parts), ROLE_OF.get(parts[-1].lower())
    counted = COUNTED.fullmatch(name)
    if counted and counted[1] in NUMBERED:
        role = NUMBERED[counted[1]]
        return PlainName(f"{role} {counted[2]}", role, name, depth, None)
    label = known or name
    if known and head is not None:
        label = f"{known}, head {head}"
    return PlainName(label, known or name, name, depth, head)


def _head(parts: Sequence[str]) -> int | None:
    return next((int(match[1]) + 1 for part in parts if (match := HEAD.fullmatch(part))), None)


def _where(block: str, head: int | None) -> str:
    return f", {block}" + ("" if head is None else f", head {head}")
