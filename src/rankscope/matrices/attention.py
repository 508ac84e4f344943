"""Attention modules as projections split by head, with the products K_h^T Q_h and O_h V_h."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from rankscope.matrices.product import ProductReading
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.rules import view_rule
from rankscope.matrices.wrappers import children

Role = Literal["q", "k", "v", "o"]
Layout = Literal["blocks", "interleaved"]


@dataclass(frozen=True)
class Attention:
    """One attention module with its projections split by head.

    Query, key and value have outputs (head, unit); the output projection has inputs (head, unit).
    Query head h meets key and value head h // (heads / kv_heads).
    """

    name: str
    query: Reading
    key: Reading
    value: Reading
    output: Reading | None
    heads: int
    kv_heads: int
    head_dim: int

    def head(self, role: Role, head: int) -> Reading:
        """Return the part of one query head, or of the key or value head it meets.

        Its name is `<attention>.h3.k` for the key that query head 3 meets.
        """
        projection = {"q": self.query, "k": self.key, "v": self.value, "o": self.output}[role]
        if projection is None:
            raise ValueError(f"attention {self.name!r} has no output projection")
        position = head if role in "qo" else head * self.kv_heads // self.heads
        name = dotted(self.name, f"h{head}", role)
        return projection.at("head", position, name=name, kind="head")

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Projections, with the output last if there is one."""
        outputs = () if self.output is None else (self.output,)
        return (self.query, self.key, self.value, *outputs)

    def parts(self) -> Iterator[Reading]:
        """Yield the parts of the model's matrices: blocks of a fused projection, then heads."""
        yield from (reading for reading in self.readings if reading.part_of is not None)
        roles: tuple[Role, ...] = ("q", "k", "v") if self.output is None else ("q", "k", "v", "o")
        for head in range(self.heads):
            yield from (self.head(role, head) for role in roles)

    def products(self) -> Iterator[ProductReading]:
        """Yield K_h^T Q_h and, with an output projection, O_h V_h of each head, not scaled."""
        for head in range(self.heads):
            key, query = self.head("k", head).transposed(), self.head("q", head).transposed()
            yield ProductReading(dotted(self.name, f"h{head}", "kq"), "kq", key, query)
            if self.output is not None:
                output, value = self.head("o", head), self.head("v", head).transposed()
                yield ProductReading(dotted(self.name, f"h{head}", "vo"), "vo", output, value)


def separate_attention(
    module: nn.Module,
    name: str,
    *,
    query: str,
    key: str,
    value: str,
    output: str | None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> Attention:
    """Return attention whose projections are separate modules below `module` ("self.query").

    One of `heads` and `head_dim` is enough: the rest follows from the shapes.
    """
    projections = [projection(module, name, path) for path in (query, key, value)]
    return assembled(
        module, name, projections, output, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )


def fused_attention(
    module: nn.Module,
    name: str,
    *,
    fused: str,
    output: str | None,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    layout: Layout = "blocks",
) -> Attention:
    """Return attention with one projection that holds queries, keys and values.

    Layout "blocks" has the rows of all queries, then all keys, then all values. Layout
    "interleaved" has queries, keys and values of one head after another.
    """
    whole = projection(module, name, fused)
    query_rows = whole.m // 3 if output is None else projection(module, name, output).n
    dim = head_dim or query_rows // heads
    if layout == "interleaved":
        blocks = _interleaved(whole, name, heads, dim)
    else:
        key_rows = (whole.m - heads * dim) // 2
        blocks = blocks_of(whole, name, {"q": heads * dim, "k": key_rows, "v": key_rows})
    return assembled(module, name, blocks, output, heads=heads, kv_heads=kv_heads, head_dim=dim)


def blocks_of(whole: Reading, name: str, sizes: dict[str, int]) -> list[Reading]:
    """Return successive row blocks of a fused projection, as parts `<attention>.<role>`."""
    if sum(sizes.values()) != whole.m:
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, not the {sizes} its heads need"
        )
    blocks, start = [], 0
    for role, size in sizes.items():
        part = dotted(name, role)
        blocks.append(whole.narrow("out", start, start + size, name=part, kind="block"))
        start += size
    return blocks


def _interleaved(whole: Reading, name: str, heads: int, head_dim: int) -> list[Reading]:
    if whole.m != 3 * heads * head_dim:
        raise ValueError(
            f"attention {name!r}: {whole.name!r} has {whole.m} rows, "
            f"expected 3 x {heads} heads x {head_dim}"
        )
    split = whole.split("out", (("head", heads), ("qkv", 3), ("unit", head_dim)))
    return [
        split.at("qkv", i, name=dotted(name, role), kind="block") for i, role in enumerate("qkv")
    ]


def projection(module: nn.Module, name: str, path: str) -> Reading:
    """Return the one matrix, with rows "out" and columns "in", of a layer below `module`."""
    for step in path.split("."):
        module = children(module)[step]
    layer_name = dotted(name, path)
    # PEFT keeps the layer it adapts in `base_layer`; `to_out` is often (Linear, Dropout).
    while inner := next((key for key in ("base_layer", "0") if key in children(module)), None):
        module, layer_name = children(module)[inner], dotted(layer_name, inner)
    readings = view_rule(module, layer_name)
    if len(readings) == 1 and readings[0].outputs == ("out",) and readings[0].inputs[:1] == ("in",):
        (reading,) = readings
        if dict(reading.axes)["in"] == reading.n:  # a convolution must have 1 x 1 taps
            return reading
    layer = type(module).__name__
    raise ValueError(
        f"attention {name!r}: {layer_name!r} is a {layer}, not read as one out x in matrix"
    )


def assembled(
    module: nn.Module,
    name: str,
    projections: Sequence[Reading],
    output_path: str | None,
    *,
    heads: int | None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> Attention:
    """Return attention from its projections, split by head, if numbers and shapes agree."""
    query, key, value = projections
    output = None if output_path is None else projection(module, name, output_path)
    if heads is None and head_dim is None:
        raise ValueError(f"attention {name!r}: the number of heads is unknown")
    heads = heads or query.m // (head_dim or 1)
    head_dim = head_dim or query.m // heads
    kv_heads = kv_heads or key.m // max(head_dim, 1)
    value_dim = value.m // max(kv_heads, 1)
    expected = (heads * head_dim, kv_heads * head_dim, kv_heads * value_dim, heads * value_dim)
    got = (query.m, key.m, value.m, heads * value_dim if output is None else output.n)
    if expected != got or 0 in expected or heads % kv_heads:
        raise ValueError(
            f"attention {name!r}: {heads} heads and {kv_heads} key heads of width {head_dim} do "
            f"not fit {got[0]} query, {got[1]} key and {got[2]} value rows, {got[3]} output columns"
        )
    return Attention(
        name=name,
        query=_by_head(query, "out", heads),
        key=_by_head(key, "out", kv_heads),
        value=_by_head(value, "out", kv_heads),
        output=None if output is None else _by_head(output, "in", heads),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


def _by_head(reading: Reading, axis: str, heads: int) -> Reading:
    sizes = dict(reading.axes)
    if "head" in sizes:  # interleaved projections are split already
        return reading
    return reading.split(axis, (("head", heads), ("unit", sizes[axis] // heads)))


def multihead_attention(module: nn.MultiheadAttention, name: str) -> Attention | None:
    """Return `nn.MultiheadAttention`, packed or separate, as attention; None if parametrized."""
    readings = view_rule(module, name)
    if len(readings) not in (1, 3) or "weight" not in module.out_proj._parameters:
        return None
    if len(readings) == 1:
        (packed,) = readings
        sizes = dict(packed.axes)
        flat = replace(packed, axes=(("out", packed.m), ("in", sizes["in"])), outputs=("out",))
        readings = tuple(blocks_of(flat, name, {role: sizes["out"] for role in "qkv"}))
    return assembled(module, name, readings, "out_proj", heads=module.num_heads)
