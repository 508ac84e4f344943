"""The stages of a forward pass: each takes an activation by a matrix and gives another.

A product with a stored matrix is a stage, and so is one call of a recurrent module, which may be a
single node.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from torch.autograd.graph import Node

from rankscope.matrices import Reading
from rankscope.pairs.flow import Flow
from rankscope.pairs.forward import Call
from rankscope.pairs.graph import PRODUCTS, Edge, Use, operation, shape_of
from rankscope.pairs.matching import Piece, Taking, piece
from rankscope.pairs.pair import Side
from rankscope.pairs.recurrent import Recurrent


@dataclass
class Stages:
    """`givers` are the matrices behind each source of features, `beginnings` where flows begin."""

    takings: list[Taking] = field(default_factory=list)
    givers: list[tuple[Piece, ...]] = field(default_factory=list)
    beginnings: dict[Edge, tuple[Flow, ...]] = field(default_factory=dict)
    sources_at: defaultdict[Node, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add_source(self, pieces: Iterable[Piece]) -> int:
        self.givers.append(tuple(pieces))
        return len(self.givers) - 1

    def begin(self, edge: Edge | None, flows: Iterable[Flow]) -> None:
        """Flows that begin at an edge, in place of whatever else reaches it."""
        if edge is not None:
            self.beginnings[edge] = tuple(flows)
            self.sources_at[edge[0]].update(flow.source for flow in self.beginnings[edge])


def stages(
    products: Iterable[Use], calls: Iterable[Call], readings: dict[str, list[Reading]]
) -> Stages:
    """All stages; `readings` are the whole matrices by parameter."""
    found = Stages()
    for use in products:
        if not depthwise(readings[use.parameter]):
            _add_product(found, use, readings[use.parameter])
    for call in calls:
        _add_call(found, call)
    return found


def depthwise(readings: list[Reading]) -> bool:
    """Whether each group maps one channel to one: nothing to compare, channels pass through."""
    return len(readings) > 1 and all(
        dict(reading.axes).get("group") and dict(reading.axes)["in"] == reading.m == 1
        for reading in readings
    )


def _add_product(found: Stages, use: Use, readings: list[Reading]) -> None:
    chosen = [each for each in readings if use.expert in (None, dict(each.index).get("expert"))]
    if operation(use.node) == "Convolution":
        chosen = [_as_convolution(reading, use.node) for reading in chosen]
    summed = _summed_side(use, chosen[0])
    kept: Side = "out" if summed == "in" else "in"
    givers = tuple(piece(reading, kept) for reading in chosen)
    total, size = givers[0].total, shape_of((use.node, 0))[use.out_axis]
    lost = "" if total == size else f"it is read with {total} outputs where {size} come out"
    flow = Flow(found.add_source(givers), use.out_axis, total, lost=lost)
    found.begin((use.node, 0), [flow])
    if use.activation is not None:
        takers = tuple(piece(reading, summed) for reading in chosen)
        moment = use.node._sequence_nr()
        found.takings.append(Taking(takers, use.activation, use.in_axis, moment))


def _as_convolution(reading: Reading, node: Node) -> Reading:
    """The filters of a parametrized convolution, which no rule reads, with their axes named."""
    if reading.kind != "flattened" or node._saved_transposed:  # type: ignore[attr-defined]
        return reading
    names = ("out", "in", *(f"tap{i}" for i in range(len(reading.axes) - 2)))
    axes = tuple((name, size) for name, (_, size) in zip(names, reading.axes, strict=True))
    return replace(reading, axes=axes, outputs=names[:1], inputs=names[1:])


def _summed_side(use: Use, reading: Reading) -> Side:
    """The side that meets the activation: "out" where a tied embedding is the output layer."""
    if use.sums_last is not None:
        last_is_input = reading.axes[-1][0] in reading.inputs
        return "in" if use.sums_last == last_is_input else "out"
    if use.activation is None or operation(use.node) not in PRODUCTS:
        return "in"
    size = shape_of(use.activation)[use.in_axis]
    return "out" if size == reading.m != reading.n else "in"


def _add_call(found: Stages, call: Call) -> None:
    unit = call.unit
    sources = [
        found.add_source(_states(unit, layer, direction))
        for layer in range(unit.layers)
        for direction in range(unit.directions)
    ]
    output = [
        Flow(source, _last_axis(call.output), unit.width, start=direction * unit.width)
        for direction, source in enumerate(sources[-unit.directions :])
    ]
    final = [
        Flow(source, _last_axis(call.final), unit.width, slot=slot)
        for slot, source in enumerate(sources)
    ]
    found.begin(call.output, output)
    found.begin(call.final, final)
    # No one matrix makes the cell state, and what entered the module must not leak out through it.
    found.begin(call.cell, ())
    if call.taken is not None:
        size = unit.inputs
        takers = (Piece(name, "in", 0, size, size, recurrent=True) for name in unit.takers())
        found.takings.append(Taking(tuple(takers), call.taken, call.in_axis, _moment(call.output)))


def _states(unit: Recurrent, layer: int, direction: int) -> Iterator[Piece]:
    for matrix, cut, gate in unit.states(layer, direction):
        yield Piece(matrix, "out", 0, unit.width, unit.width, cut=cut, gate=gate, recurrent=True)


def _last_axis(edge: Edge | None) -> int | None:
    return None if edge is None else len(shape_of(edge)) - 1


def _moment(edge: Edge | None) -> int:
    return sys.maxsize if edge is None else edge[0]._sequence_nr()
