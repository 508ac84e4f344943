"""Stages of a forward pass: places where matrices take one activation and give another.

A product with a stored matrix is a stage. One call of a recurrent module is a stage too; it may be
a single node of the graph.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from torch.autograd.graph import Node

from rankscope.matrices import Reading
from rankscope.pairs.flow import Flow
from rankscope.pairs.forward import Call
from rankscope.pairs.graph import PRODUCTS, Edge, Use, operation, shape_of
from rankscope.pairs.matching import Consumer, Piece, piece
from rankscope.pairs.pair import Side


@dataclass
class Stages:
    """Stages of one forward pass, as sources of features and consumers of activations.

    consumers: the matrices that take each activation.
    sources: the matrices behind each source of features; a source's number is its position.
    beginnings: flows that begin at an edge.
    sources_at: numbers of the sources that begin at a node.
    """

    consumers: list[Consumer] = field(default_factory=list)
    sources: list[tuple[Piece, ...]] = field(default_factory=list)
    beginnings: dict[Edge, tuple[Flow, ...]] = field(default_factory=dict)
    sources_at: defaultdict[Node, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add_source(self, pieces: Iterable[Piece]) -> int:
        """Add a source and return its number."""
        self.sources.append(tuple(pieces))
        return len(self.sources) - 1

    def begin(self, edge: Edge | None, flows: Iterable[Flow]) -> None:
        """Let flows begin at an edge, in place of whatever else reaches it."""
        if edge is not None:
            self.beginnings[edge] = tuple(flows)
            self.sources_at[edge[0]].update(flow.source for flow in self.beginnings[edge])


def stages(
    products: Iterable[Use], calls: Iterable[Call], readings: dict[str, list[Reading]]
) -> Stages:
    """Return all stages; `readings` are the whole matrices by parameter."""
    collected = Stages()
    for use in products:
        if not passes_channels(readings[use.parameter]):
            _add_product(collected, use, readings[use.parameter])
    for call in calls:
        _add_call(collected, call)
    return collected


def passes_channels(readings: list[Reading]) -> bool:
    """Tell whether a depthwise convolution gives one channel for each, unmixed."""
    sizes = dict(readings[0].axes)
    return readings[0].kind == "depthwise" and sizes["in"] == sizes["out"] == 1


def _add_product(collected: Stages, use: Use, readings: list[Reading]) -> None:
    experts = [reading for reading in readings if dict(reading.index).get("expert") == use.expert]
    # A part of a tensor that is no stack is seen by its size, which differs from the whole's.
    used = experts or readings
    if operation(use.node) == "Convolution":
        used = [_as_convolution(reading, use.node) for reading in used]
    in_side = _summed_side(use, used[0])
    out_side: Side = "out" if in_side == "in" else "in"
    outputs = tuple(piece(reading, out_side) for reading in used)
    total, size = outputs[0].total, shape_of((use.node, 0))[use.out_axis]
    reason = "" if total == size else f"it is read with {total} outputs where {size} come out"
    flow = Flow(collected.add_source(outputs), use.out_axis, total, lost_reason=reason)
    collected.begin((use.node, 0), [flow])
    # The rows of a depthwise convolution are channels; its columns are taps of single channels.
    if use.activation is not None and used[0].kind != "depthwise":
        inputs = tuple(piece(reading, in_side) for reading in used)
        moment = use.node._sequence_nr()
        collected.consumers.append(Consumer(inputs, use.activation, use.in_axis, moment))


def _as_convolution(reading: Reading, node: Node) -> Reading:
    """Name the axes of a parametrized convolution's filters, which no rule reads."""
    if reading.kind != "flattened" or node._saved_transposed:  # type: ignore[attr-defined]
        return reading
    names = ("out", "in", *(f"tap{i}" for i in range(len(reading.axes) - 2)))
    axes = tuple((name, size) for name, (_, size) in zip(names, reading.axes, strict=True))
    return replace(reading, axes=axes, outputs=names[:1], inputs=names[1:])


def _summed_side(use: Use, reading: Reading) -> Side:
    """Return the side that meets the activation: "out" for a tied embedding as output layer."""
    if use.sums_last is not None:
        last_is_input = reading.axes[-1][0] in reading.inputs
        return "in" if use.sums_last == last_is_input else "out"
    if use.activation is None or operation(use.node) not in PRODUCTS:
        return "in"
    size = shape_of(use.activation)[use.in_axis]
    return "out" if size == reading.m != reading.n else "in"


def _add_call(collected: Stages, call: Call) -> None:
    unit = call.unit
    sources = [
        collected.add_source(
            Piece(matrix, "out", 0, unit.width, unit.width, cut=cut, gate=gate, recurrent=True)
            for matrix, cut, gate in unit.states(layer, direction)
        )
        for layer in range(unit.layers)
        for direction in range(unit.directions)
    ]
    output = [
        Flow(source, _last_axis(call.output), unit.width, first_channel=direction * unit.width)
        for direction, source in enumerate(sources[-unit.directions :])
    ]
    final = [
        Flow(source, _last_axis(call.final), unit.width, state_index=index)
        for index, source in enumerate(sources)
    ]
    collected.begin(call.output, output)
    collected.begin(call.final, final)
    # No one matrix makes the cell state, and what entered the module must not leak out through it.
    collected.begin(call.cell, ())
    if call.input is not None:
        size = unit.inputs
        inputs = tuple(
            Piece(name, "in", 0, size, size, recurrent=True) for name in unit.input_matrices()
        )
        moment = sys.maxsize if call.output is None else call.output[0]._sequence_nr()
        collected.consumers.append(Consumer(inputs, call.input, call.in_axis, moment))


def _last_axis(edge: Edge | None) -> int | None:
    return None if edge is None else len(shape_of(edge)) - 1
