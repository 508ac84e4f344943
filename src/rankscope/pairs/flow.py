"""How the outputs of a matrix move through the operations after it, up to the next matrix.

A flow stands for some features in one tensor of the graph; where tensors meet, flows are joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.autograd.graph import Node

from rankscope.pairs.graph import PRODUCTS, Shape, operation, saved


@dataclass(frozen=True)
class Flow:
    """Features first .. first + count of a source, and where they stand in a later tensor.

    They are the channels start .. start + count along `axis` (None: somewhere, in an order not
    followed). `positions` entries stand for each channel after flattening (batch, channel, row,
    column); the other way round, `split` features of the source went into one channel. `slot` is
    their place along axis 0 of a recurrent module's final states. `weighs`: through a softmax, so
    these are weights of a mixture, not features. `lost` says why they cannot be compared with
    anything.
    """

    source: int
    axis: int | None
    count: int
    first: int = 0
    start: int = 0
    positions: int = 1
    split: int = 1
    slot: int | None = None
    weighs: bool = False
    lost: str = ""


@dataclass(frozen=True)
class Step:
    """One input of a node: its place among the inputs, its shape, and one of the node's outputs."""

    node: Node
    place: int
    before: Shape
    number: int
    after: Shape

    @property
    def name(self) -> str:
        return operation(self.node)

    @property
    def dim(self) -> int:
        return saved(self.node, "dim") % max(len(self.before), 1)


def joined(name: str, operands: Sequence[Sequence[Flow]], below: Sequence[int]) -> tuple[Flow, ...]:
    """What a node puts out, from what came in by each of its inputs.

    Where paths are added, a source is ignored if another path passes through a matrix that this
    source feeds: that is the residual path around it. Factors and concatenated features all stay,
    since each brings something of its own, but the weights of a mixture give way to what they mix.

    below: for each source, the sources that feed it, as bits.
    """
    if name in ("Mul", "Div", "Cat", "Stack", "Glu", *PRODUCTS):
        mixed = [flows for flows in operands if not all(flow.weighs for flow in flows)]
        chosen = mixed or operands
        return tuple(dict.fromkeys(flow for flows in chosen for flow in flows))
    feeding = [_bits(flows, below) for flows in operands]
    kept: dict[Flow, None] = {}
    for place, flows in enumerate(operands):
        others = 0
        for other, bits in enumerate(feeding):
            others |= bits if other != place else 0
        kept |= dict.fromkeys(flow for flow in flows if not others >> flow.source & 1)
    return tuple(kept)


def _bits(flows: Sequence[Flow], below: Sequence[int]) -> int:
    bits = 0
    for flow in flows:
        bits |= below[flow.source]
    return bits
