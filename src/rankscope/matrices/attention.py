"""Attention modules as projections split by head, with the products K_h^T Q_h and O_h V_h."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from rankscope.matrices.product import ProductReading
from rankscope.matrices.projections import output_projection, projection
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.rules import view_rule

Role = Literal["q", "k", "v", "o"]


@dataclass(frozen=True)
class Attention:
    """One attention module with its projections split by head.

    Query, key and value have outputs (head, unit); the output projection has inputs (head, unit).
    Heads of some fused projections have two axes (group, head).

    key_heads: the key and value head that each query head meets; if empty, query head h meets
        head h // (heads / kv_heads).
    output_heads: number of products O_h V_h if it is not `heads`. In differential attention two
        query heads share one head of values and outputs.
    query_latent, key_value_latent: the projection D to a latent that queries, or keys and values,
        are computed from: K_h is then the product of the key head and D.
    note: what the products leave out, for the coverage.
    """

    name: str
    query: Reading
    key: Reading
    value: Reading
    output: Reading | None
    heads: int
    kv_heads: int
    head_dim: int
    key_heads: tuple[int, ...] = ()
    output_heads: int | None = None
    query_latent: Reading | None = None
    key_value_latent: Reading | None = None
    note: str = ""

    def head(self, role: Role, head: int) -> Reading:
        """Return the part of one query head, or of the key or value head it meets.

        Its name is `<attention>.h3.k` for the key that query head 3 meets.
        """
        projection = {"q": self.query, "k": self.key, "v": self.value, "o": self.output}[role]
        if projection is None:
            raise ValueError(f"attention {self.name!r} has no output projection")
        name = dotted(self.name, f"h{head}", role)
        return _at_head(projection, self._position(role, head), name)

    def _position(self, role: Role, head: int) -> int:
        if role in "qo":
            return head
        if role == "v" and self.output_heads is not None:
            return head * _head_count(self.value) // self.output_heads
        return self.key_heads[head] if self.key_heads else head * self.kv_heads // self.heads

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Projections, then the output and the latents if there are any."""
        more = (self.output, self.query_latent, self.key_value_latent)
        present = tuple(reading for reading in more if reading is not None)
        return (self.query, self.key, self.value, *present)

    def parts(self) -> Iterator[Reading]:
        """Yield the parts of the model's matrices: blocks of a fused projection, then heads."""
        yield from (reading for reading in self.readings if reading.part_of is not None)
        for head in range(self.heads):
            yield from (self.head(role, head) for role in self._roles(head))

    def _roles(self, head: int) -> tuple[Role, ...]:
        if head >= (self.output_heads or self.heads):
            return ("q", "k")
        return ("q", "k", "v") if self.output is None else ("q", "k", "v", "o")

    def products(self) -> Iterator[ProductReading]:
        """Yield K_h^T Q_h and, with an output projection, O_h V_h of each head, not scaled."""
        query_latent = self.query_latent and self.query_latent.transposed()
        latent = self.key_value_latent and self.key_value_latent.transposed()
        for head in range(self.heads):
            key, query = self.head("k", head).transposed(), self.head("q", head).transposed()
            name = dotted(self.name, f"h{head}", "kq")
            yield ProductReading(
                name, "kq", key, query, left_latent=latent, right_latent=query_latent
            )
            if "o" in self._roles(head):
                output, value = self.head("o", head), self.head("v", head).transposed()
                name = dotted(self.name, f"h{head}", "vo")
                yield ProductReading(name, "vo", output, value, right_latent=latent)


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
    key_heads: Sequence[int] = (),
) -> Attention:
    """Return attention whose projections are separate modules below `module` ("self.query").

    One of `heads` and `head_dim` is enough: the rest follows from the shapes. `key_heads` names
    the key head that each query head meets, if it is not h // (heads / kv_heads).
    """
    return assembled(
        name,
        [projection(module, name, path) for path in (query, key, value)],
        output_projection(module, name, output),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        key_heads=key_heads,
    )


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


def assembled(
    name: str,
    projections: Sequence[Reading],
    output: Reading | None,
    *,
    heads: int | None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    key_heads: Sequence[int] = (),
    output_heads: int | None = None,
) -> Attention:
    """Return attention from its projections, split by head, if numbers and shapes agree.

    A projection that has an axis "head" already is split as it says.
    """
    query, key, value = projections
    if heads is None and head_dim is None:
        raise ValueError(f"attention {name!r}: the number of heads is unknown")
    heads = heads or query.m // (head_dim or 1)
    head_dim = head_dim or query.m // heads
    kv_heads = kv_heads or key.m // max(head_dim, 1)
    value_heads = _head_count(value) or kv_heads
    value_dim = value.m // max(value_heads, 1)
    outputs = (output_heads or heads) * value_dim
    expected = (heads * head_dim, kv_heads * head_dim, value_heads * value_dim, outputs)
    got = (query.m, key.m, value.m, outputs if output is None else output.n)
    if expected != got or 0 in expected or heads % kv_heads:
        raise ValueError(
            f"attention {name!r}: {heads} heads and {kv_heads} key heads of width {head_dim} do "
            f"not fit {got[0]} query, {got[1]} key and {got[2]} value rows, {got[3]} output columns"
        )
    if key_heads and (len(key_heads) != heads or not set(key_heads) <= set(range(kv_heads))):
        raise ValueError(
            f"attention {name!r}: got key_heads {list(key_heads)}, expected {heads} numbers below "
            f"{kv_heads}"
        )
    return Attention(
        name=name,
        query=_by_head(query, "out", heads),
        key=_by_head(key, "out", kv_heads),
        value=_by_head(value, "out", value_heads),
        output=None if output is None else _by_head(output, "in", output_heads or heads),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        key_heads=tuple(key_heads),
        output_heads=output_heads,
    )


def _by_head(reading: Reading, axis: str, heads: int) -> Reading:
    sizes = reading.sizes
    if "head" in sizes:  # interleaved projections are split already
        return reading
    return reading.split(axis, (("head", heads), ("unit", sizes[axis] // heads)))


def _head_count(reading: Reading) -> int:
    """Return the number of heads of a projection that is split; 0 if it is not."""
    return reading.sizes.get("group", 1) * reading.sizes.get("head", 0)


def _at_head(reading: Reading, position: int, name: str) -> Reading:
    """Return one head; a projection with groups of heads counts them through."""
    if "group" in reading.sizes:
        group, position = divmod(position, reading.sizes["head"])
        reading = reading.at("group", group, name=name, kind="head")
    return reading.at("head", position, name=name, kind="head")


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
    output = projection(module, name, "out_proj")
    return assembled(name, readings, output, heads=module.num_heads)
