"""Pairs of a model that declares none, from the autograd graph of one forward pass.

Each matrix is paired with the nearest earlier ones: those whose outputs reach it without passing
another matrix. Residual paths are ignored, which is to say that of two paths that are added, one
that only brings what the other has already worked on does not count; parallel branches all count.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from torch import nn
from torch.autograd.graph import Node

from rankscope.matrices import Manifest, Reading, manifest, named_tensors
from rankscope.matrices.reading import dotted
from rankscope.matrices.wrappers import walk
from rankscope.pairs.flow import Flow, Step, joined
from rankscope.pairs.forward import Call, trace
from rankscope.pairs.graph import Edge, Use, in_order, inputs_of, operation, shape_of, uses
from rankscope.pairs.matching import LeftOut, match
from rankscope.pairs.moves import moved
from rankscope.pairs.pair import Cut, Pair
from rankscope.pairs.recurrent import recurrent
from rankscope.pairs.rules import inside_pairs
from rankscope.pairs.stages import Stages, depthwise, stages


class Pairs(tuple[Pair, ...]):
    """Pairs in the order of the forward pass; `left_out` says what could not be paired, and why."""

    left_out: tuple[LeftOut, ...]

    def __new__(cls, pairs: Iterable[Pair], left_out: Iterable[LeftOut] = ()) -> "Pairs":
        self = super().__new__(cls, pairs)
        self.left_out = tuple(left_out)
        return self


def discover_pairs(model: nn.Module, /, *example_inputs: Any, **kwargs: Any) -> Pairs:
    """The pairs inside and between the modules of a model, found by running it once.

    The unwrapped model runs eagerly in eval mode; its mode, buffers, gradients and the state of the
    random numbers are as before when this returns or fails. What the model declares in
    `alignment_pairs()` is not consulted.
    """
    traced = trace(model, example_inputs, kwargs)
    read = manifest(model)
    readings = _by_parameter(read)
    order = in_order(traced.outputs)
    products = tuple(uses(order, _identities(model, readings)).values())
    found = stages(products, traced.calls, readings)
    inside = inside_pairs(model)
    between = list(_outside_rules(_between(found, _flows(order, found)), inside, read))
    moments = _moments(products, traced.calls, readings)
    timed = [(moment, each) for moment, each in between if isinstance(each, Pair)]
    whole = {reading.name: reading.part_of or reading.name for reading in read.readings}
    timed += [(moments.get(whole.get(pair.later, ""), sys.maxsize), pair) for pair in inside]
    timed.sort(key=lambda each: each[0])
    left_out = [each for _, each in between if isinstance(each, LeftOut)]
    return Pairs(
        _told_apart(dict.fromkeys(pair for _, pair in timed)),
        dict.fromkeys([*left_out, *_unpaired(readings, moments)]),
    )


def _by_parameter(read: Manifest) -> dict[str, list[Reading]]:
    """The whole matrices in each tensor."""
    readings: dict[str, list[Reading]] = {}
    for reading in read.matrices:
        if reading.part_of is None:
            readings.setdefault(reading.parameter, []).append(reading)
    return readings


def _identities(model: nn.Module, readings: Mapping[str, object]) -> dict[int, str]:
    """The tensors whose products are stages of their own, by id: all but recurrent modules'."""
    fused = {
        id(parameter)
        for name, module in walk(model)
        if recurrent(module, name) is not None
        for parameter in module.parameters(recurse=False)
    }
    tensors = named_tensors(model)
    return {id(tensors[name]): name for name in readings if id(tensors[name]) not in fused}


def _flows(order: Sequence[Node], found: Stages) -> dict[Edge, tuple[Flow, ...]]:
    """The flows that stand in each tensor of the graph."""
    flows: dict[Edge, tuple[Flow, ...]] = {}
    reached: dict[Node, int] = {}
    below = [0] * len(found.givers)
    for node in order:
        bits = 0
        for source, _ in node.next_functions:
            bits |= 0 if source is None else reached[source]
        reached[node] = bits
        for giver in found.sources_at.get(node, ()):
            below[giver] |= bits
            reached[node] |= 1 << giver
        for number in range(len(node._input_metadata)):
            edge = (node, number)
            begun = found.beginnings.get(edge)
            flows[edge] = _arrived(edge, flows, below) if begun is None else begun
    return flows


def _arrived(
    edge: Edge, flows: Mapping[Edge, tuple[Flow, ...]], below: Sequence[int]
) -> tuple[Flow, ...]:
    """The flows in one output of a node, from those in its inputs."""
    node, number = edge
    operands: list[tuple[Flow, ...]] = []
    for place, source in enumerate(inputs_of(node)):
        if source is not None and flows[source]:
            step = Step(node, place, shape_of(source), number, shape_of(edge))
            came = (after for flow in flows[source] for after in moved(flow, step))
            operands.append(tuple(dict.fromkeys(came)))
    return joined(operation(node), operands, below)


def _between(
    found: Stages, flows: Mapping[Edge, tuple[Flow, ...]]
) -> Iterator[tuple[int, Pair | LeftOut]]:
    """Each matrix with those whose features it takes, and the moment when it does."""
    for taking in found.takings:
        arrived = flows.get(taking.activation, ())
        intact = {flow.source for flow in arrived if not flow.lost}
        for flow in arrived:
            if flow.lost and flow.source in intact:
                continue
            for earlier, later in product(found.givers[flow.source], taking.pieces):
                pair = match(flow, earlier, later, taking)
                if pair is not None:
                    yield taking.moment, pair


def _outside_rules(
    between: Iterable[tuple[int, Pair | LeftOut]], inside: Iterable[Pair], read: Manifest
) -> Iterator[tuple[int, Pair | LeftOut]]:
    """Without what the graph says inside a module whose own rule knows better."""
    attention = {
        reading.part_of or reading.name: each.name
        for each in read.attentions
        for reading in each.readings
    }
    ruled = {(pair.earlier, pair.later) for pair in inside}
    for moment, each in between:
        same = each.earlier in attention and attention[each.earlier] == attention.get(each.later)
        if not same and (each.earlier, each.later) not in ruled:
            yield moment, each


def _told_apart(pairs: Collection[Pair]) -> list[Pair]:
    """The pairs, labelled by their cuts where two would have the same name."""
    names = Counter(pair.name for pair in pairs)
    return [replace(pair, label=_label(pair)) if names[pair.name] > 1 else pair for pair in pairs]


def _label(pair: Pair) -> str:
    spans = {"out": _span(pair.earlier_cut), "in": _span(pair.later_cut)}
    words = [pair.label, *(f"{side} {span}" for side, span in spans.items() if span)]
    return " ".join(word for word in words if word)


def _span(cut: Cut | None) -> str:
    """The channels a cut keeps, as start:stop; empty where it keeps all."""
    if cut is None or cut.index[0] is None:
        return ""
    first = cut.index[0]
    if isinstance(first, tuple):
        return f"{first[0]}:{first[1]}"
    return f"{first * cut.shape[1]}:{(first + 1) * cut.shape[1]}"


def _moments(
    products: Iterable[Use], calls: Iterable[Call], readings: Mapping[str, list[Reading]]
) -> dict[str, int]:
    """When each matrix was first used, by the numbers that autograd gives its nodes."""
    used = [(use.node, use.parameter) for use in products]
    for call in calls:
        if call.output is not None:
            own = (name for name in readings if name.startswith(dotted(call.unit.name, "weight_")))
            used += [(call.output[0], name) for name in own]
    moments: dict[str, int] = {}
    for node, parameter in used:
        for reading in readings[parameter]:
            moment = node._sequence_nr()
            moments[reading.name] = min(moment, moments.get(reading.name, moment))
    return moments


def _unpaired(
    readings: Mapping[str, list[Reading]], moments: Mapping[str, int]
) -> Iterator[LeftOut]:
    for each in readings.values():
        if depthwise(each):
            reason = "depthwise: it mixes no channels, so its neighbours are paired through it"
            yield LeftOut(each[0].name.removesuffix(".g0"), "", reason)
        elif each[0].name not in moments:
            yield LeftOut(each[0].name, "", "no product with it was seen in this forward pass")
