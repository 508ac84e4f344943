"""Plain names of matrices: "blocks.3.attention.q" is "queries, layer 3"."""

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
    "input to gates": ("ih", "weight_ih"),
    "recurrent to gates": ("hh", "weight_hh"),
    "K-Q": ("kq",),
    "V-O": ("vo",),
    "LoRA": ("lora",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
HEAD = re.compile(r"h(?:ead)?s?\.?(\d+)")


@dataclass(frozen=True)
class PlainName:
    """The words for one matrix.

    role: what it does, "queries"; the same for all layers. block: the layer it belongs to.
    depth: number of the block in the order of the model. head: its attention head, if it has one.
    """

    label: str
    role: str
    block: str
    depth: int
    head: int | None


def plain_names(names: Sequence[str]) -> list[PlainName]:
    """Return the words for each name; names that no rule knows stay as they are."""
    blocks = [_block(name) for name in names]
    stems = {block.rpartition(".")[0] for block in blocks if block}
    order: dict[str, int] = {}
    for block, name in zip(blocks, names, strict=True):
        order.setdefault(block or name, len(order))
    return [
        _plain(name, block, order[block or name], several=len(stems) > 1)
        for name, block in zip(names, blocks, strict=True)
    ]


def plain_pairs(earlier: Sequence[str], later: Sequence[str]) -> list[PlainName]:
    """Return the words for each pair of matrices."""
    both = plain_names([*earlier, *later])
    pairs = zip(both[: len(earlier)], both[len(earlier) :], strict=True)
    return [_pair(first, second) for first, second in pairs]


def _pair(first: PlainName, second: PlainName) -> PlainName:
    role = f"{first.role} > {second.role}"
    head = first.head if first.head == second.head else None
    if first.block == second.block:
        where = _where(first.block, head)
        return PlainName(f"{role}{where}", role, first.block, first.depth, head)
    return PlainName(f"{first.label} > {second.label}", role, first.block, first.depth, head)


def _block(name: str) -> str:
    """Return the name up to its first number; "" if it has none."""
    parts = name.split(".")
    for position, part in enumerate(parts):
        if part.isdecimal() or re.fullmatch(r"[a-z]{1,2}\d+", part):
            if HEAD.fullmatch(part):
                continue
            return ".".join(parts[: position + 1])
    return ""


def _plain(name: str, block: str, depth: int, *, several: bool) -> PlainName:
    rest = name[len(block) :].strip(".") if block else name
    parts = rest.split(".") if rest else [name]
    head = next((int(match[1]) for part in parts if (match := HEAD.fullmatch(part))), None)
    last = parts[-1].lower()
    role = ROLE_OF.get(last)
    if role is None:
        role = re.sub(r"\d+$", "", parts[-1]) or parts[-1]
        known = False
    else:
        known = True
    if not block:
        label = role if known and head is None else name
        return PlainName(label if known else name, role, name, depth, head)
    number = re.sub(r"\D", "", block.rpartition(".")[2])
    stem = block.rpartition(".")[0]
    title = f"layer {number}" if not several else f"{_short(stem)} layer {number}".strip()
    middle = ".".join(parts[:-1])
    inside = "" if known or not middle else f"{middle}."
    if known and "reverse" in parts[:-1]:
        role += ", reverse"
    return PlainName(f"{inside}{role}{_where(title, head)}", role, title, depth, head)


def _where(block: str, head: int | None) -> str:
    return f", {block}" + ("" if head is None else f", head {head}")


def _short(stem: str) -> str:
    """Return the first word of a stack's name: "encoder" of "encoder.layers"."""
    return stem.partition(".")[0]
