"""Discover the pairs of a model from the autograd graph of one forward pass.

Each matrix is paired with the nearest earlier matrices: those whose outputs reach it without
passing through another one. Where two paths are added, a path does not count if it only brings
what the other path has already worked on, as a residual path does. Parallel branches all count.
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
from rankscope.pairs.flow import Flow, joined, steps_into
from rankscope.pairs.forward import Call, trace
from rankscope.pairs.graph import Edge, Use, in_order, operation, uses
from rankscope.pairs.matching import LeftOut, match
from rankscope.pairs.moves import moved
from rankscope.pairs.pair import Cut, Pair
from rankscope.pairs.recurrent import recurrent
from rankscope.pairs.rules import inside_pairs
from rankscope.pairs.stages import Stages, passes_channels, stages


class Pairs(tuple[Pair, ...]):
    """Pairs in the order of the forward pass; `left_out` says what could not be paired, and why."""

    left_out: tuple[LeftOut, ...]

    def __new__(cls, pairs: Iterable[Pair], left_out: Iterable[LeftOut] = ()) -> "Pairs":
        self = super().__new__(cls, pairs)
        self.left_out = tuple(left_out)
        return self


def discover_pairs(model: nn.Module, /, *example_inputs: Any, **kwargs: Any) -> Pairs:
    """Run a model once and return the pairs inside and between its modules.

    The unwrapped model runs eagerly in eval mode. Its mode, buffers, gradients and attributes and
    the state of the random numbers are restored when this returns or fails. Where `fully_shard`
    has sharded the model, every rank must call this. Pairs that the model declares in
    `alignment_pairs()` are not consulted.
    """
    outputs, calls, gathered = trace(model, example_inputs, kwargs)
    model_manifest = manifest(model)
    readings = _by_parameter(model_manifest)
    order = in_order(outputs)
    identities = _identities(model, readings, model_manifest)
    identities |= {
        id(whole): identities[id(shard)] for whole, shard in gathered if id(shard) in identities
    }
    products = tuple(uses(order, identities).values())
    model_stages = stages(products, calls, readings)
    vectors = model_manifest.vectors
    inside = [
        pair
        for pair in inside_pairs(model, known=model_manifest)
        if not vectors & {pair.earlier, pair.later}
    ]
    flows = _flows(order, model_stages)
    between = [
        (moment, pair)
        for moment, pair in _outside_rules(_between(model_stages, flows), inside, model_manifest)
        if not vectors & {pair.earlier, pair.later}
    ]
    moments = _moments(products, calls, readings)
    timed = [(moment, pair) for moment, pair in between if isinstance(pair, Pair)]
    whole = {reading.name: reading.part_of or reading.name for reading in model_manifest.readings}
    timed += [(moments.get(whole.get(pair.later, ""), sys.maxsize), pair) for pair in inside]
    timed.sort(key=lambda moment_and_pair: moment_and_pair[0])
    left_out = [reported for _, reported in between if isinstance(reported, LeftOut)]
    return Pairs(
        _with_unique_names(dict.fromkeys(pair for _, pair in timed)),
        dict.fromkeys([*left_out, *_unpaired(readings, moments, vectors)]),
    )


def _by_parameter(model_manifest: Manifest) -> dict[str, list[Reading]]:
    """Return the whole matrices in each tensor."""
    readings: dict[str, list[Reading]] = {}
    for reading in model_manifest.matrices:
        if reading.part_of is None:
            readings.setdefault(reading.parameter, []).append(reading)
    return readings


def _identities(
    model: nn.Module, readings: Mapping[str, object], model_manifest: Manifest
) -> dict[int, str]:
    """Return names by id of the tensors whose products are stages: all but recurrent modules'.

    The stored tensor that an effective weight begins with stands for it.
    """
    fused = {
        id(parameter)
        for name, module in walk(model)
        if recurrent(module, name) is not None
        for parameter in module.parameters()
    }
    tensors = named_tensors(model)
    bases = {weight.parameter: weight.base for weight in model_manifest.effective}
    stored = {name: tensors.get(bases.get(name, name)) for name in readings}
    return {
        id(tensor): name
        for name, tensor in stored.items()
        if tensor is not None and id(tensor) not in fused
    }


def _flows(order: Sequence[Node], model_stages: Stages) -> dict[Edge, tuple[Flow, ...]]:
    """Return the flows in each tensor of the graph."""
    flows: dict[Edge, tuple[Flow, ...]] = {}
    behind: dict[Node, frozenset[int]] = {}  # the sources behind each node
    upstream = [frozenset[int]()] * len(model_stages.sources)  # the sources that feed each source
    for node in order:
        inputs = [behind[parent] for parent, _ in node.next_functions if parent is not None]
        arriving = _union(inputs)
        starting = frozenset(model_stages.sources_at.get(node, ()))
        for source in starting:
            upstream[source] = _union([upstream[source], arriving])
        behind[node] = _union([arriving, starting])
        for number in range(len(node._input_metadata)):
            edge = (node, number)
            begun = model_stages.beginnings.get(edge)
            flows[edge] = _arriving_flows(edge, flows, upstream) if begun is None else begun
    return flows


def _union(sets: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the union; if the largest set has all, return it, so that most nodes share one set."""
    largest = max(sets, key=len, default=frozenset())
    return largest if all(other <= largest for other in sets) else frozenset().union(*sets)


def _arriving_flows(
    edge: Edge, flows: Mapping[Edge, tuple[Flow, ...]], upstream: Sequence[frozenset[int]]
) -> tuple[Flow, ...]:
    """Return the flows in one output of a node, from those in its inputs."""
    operands: list[tuple[Flow, ...]] = []
    for source, step in steps_into(edge):
        if flows[source]:
            after = (result for flow in flows[source] for result in moved(flow, step))
            operands.append(tuple(dict.fromkeys(after)))
    return joined(operation(edge[0]), operands, upstream)


def _between(
    model_stages: Stages, flows: Mapping[Edge, tuple[Flow, ...]]
) -> Iterator[tuple[int, Pair | LeftOut]]:
    """Yield each matrix with those whose features it takes, and the moment when it does."""
    for consumer in model_stages.consumers:
        arriving = flows.get(consumer.activation, ())
        intact = {flow.source for flow in arriving if not flow.lost_reason}
        for flow in arriving:
            if flow.lost_reason and flow.source in intact:
                continue
            for earlier, later in product(model_stages.sources[flow.source], consumer.pieces):
                pair = match(flow, earlier, later, consumer)
                if pair is not None:
                    yield consumer.moment, pair


def _outside_rules(
    between: Iterable[tuple[int, Pair | LeftOut]], inside: Iterable[Pair], model_manifest: Manifest
) -> Iterator[tuple[int, Pair | LeftOut]]:
    """Drop what the graph says inside a module whose own rule knows better."""
    attention_names = {
        reading.part_of or reading.name: attention.name
        for attention in model_manifest.attentions
        for reading in attention.readings
    }
    ruled = {(pair.earlier, pair.later) for pair in inside}
    for moment, pair in between:
        attention = attention_names.get(pair.earlier)
        in_attention = attention is not None and attention == attention_names.get(pair.later)
        if not in_attention and (pair.earlier, pair.later) not in ruled:
            yield moment, pair


def _with_unique_names(pairs: Collection[Pair]) -> list[Pair]:
    """Label pairs by their cuts where two would have the same name."""
    names = Counter(pair.name for pair in pairs)
    return [replace(pair, label=_label(pair)) if names[pair.name] > 1 else pair for pair in pairs]


def _label(pair: Pair) -> str:
    spans = {"out": _span(pair.earlier_cut), "in": _span(pair.later_cut)}
    words = [pair.label, *(f"{side} {span}" for side, span in spans.items() if span)]
    return " ".join(word for word in words if word)


def _span(cut: Cut | None) -> str:
    """Return the channels a cut keeps as start:stop; empty if it keeps all."""
    if cut is None or cut.index[0] is None:
        return ""
    first = cut.index[0]
    if isinstance(first, tuple):
        return f"{first[0]}:{first[1]}"
    return f"{first * cut.shape[1]}:{(first + 1) * cut.shape[1]}"


def _moments(
    products: Iterable[Use], calls: Iterable[Call], readings: Mapping[str, list[Reading]]
) -> dict[str, int]:
    """Return when each matrix was first used, by the numbers that autograd gives its nodes."""
    used = [(use.node, use.parameter) for use in products]
    for call in calls:
        if call.output is not None:
            prefix = dotted(call.unit.name, "weight_")
            used += [(call.output[0], name) for name in readings if name.startswith(prefix)]
    moments: dict[str, int] = {}
    for node, parameter in used:
        for reading in readings[parameter]:
            moment = node._sequence_nr()
            moments[reading.name] = min(moment, moments.get(reading.name, moment))
    return moments


def _unpaired(
    readings: Mapping[str, list[Reading]], moments: Mapping[str, int], vectors: frozenset[str]
) -> Iterator[LeftOut]:
    """Yield the matrices that no pair can have: vectors, depthwise filters and unused weights."""
    for matrices in readings.values():
        name = matrices[0].name
        if name in vectors:
            yield LeftOut(name, "", "a vector has no directions to compare")
            continue
        if passes_channels(matrices):
            reason = "depthwise: it mixes no channels, so its neighbours are paired through it"
            yield LeftOut(name, "", reason)
        elif name not in moments:
            yield LeftOut(name, "", "no product with it was seen in this forward pass")
