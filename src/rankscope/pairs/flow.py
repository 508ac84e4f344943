"""Flows: where the outputs of a matrix stand in the tensors after it, up to the next matrix.

`rankscope.pairs.moves` follows a flow through one operation; `joined` combines the flows that meet
in one.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from torch.autograd.graph import Node

from rankscope.pairs.graph import PRODUCTS, Edge, Shape, inputs_of, operation, saved, shape_of


@dataclass(frozen=True)
class Flow:
    """Some consecutive features of one source, and the place they have in a later tensor.

    The features lie along one axis of the tensor, as consecutive channels of one or several entries
    each. `rankscope.pairs.moves` has an example.

    source: number of the source whose outputs these are.
    axis: the tensor's axis along which the channels lie; None if their order is not followed.
    channels: how many channels there are.
    first_feature: position of the first feature among the outputs of the source.
    first_channel: position of the first channel along the axis, counted in channels.
    entries_per_channel: entries of the axis that belong to one channel, above 1 after flattening
        (batch, channel, row, column).
    features_per_channel: features that share one channel, above 1 after the opposite reshape.
    state_index: position of these units along axis 0 of a recurrent module's final states; None
        outside of them.
    is_mixture_weight: the features went through a softmax and weigh others.
    lost_reason: why the features cannot be compared with anything; empty if they can.
    """

    source: int
    axis: int | None
    channels: int
    first_feature: int = 0
    first_channel: int = 0
    entries_per_channel: int = 1
    features_per_channel: int = 1
    state_index: int | None = None
    is_mixture_weight: bool = False
    lost_reason: str = ""


@dataclass(frozen=True)
class Step:
    """The way through one node, from one of its inputs to one of its outputs."""

    node: Node
    input_index: int
    input_shape: Shape
    output_index: int
    output_shape: Shape

    @property
    def name(self) -> str:
        """Name of the operation, such as "Addmm"."""
        return operation(self.node)

    @property
    def dim(self) -> int:
        """The axis of the input that the operation works along."""
        return saved(self.node, "dim") % max(len(self.input_shape), 1)


def steps_into(edge: Edge) -> Iterator[tuple[Edge, Step]]:
    """Yield each input of a node that has a gradient, with the step to the output `edge`."""
    node, output_index = edge
    for input_index, source in enumerate(inputs_of(node)):
        if source is not None:
            yield source, Step(node, input_index, shape_of(source), output_index, shape_of(edge))


def joined(
    name: str, operands: Sequence[Sequence[Flow]], upstream: Sequence[AbstractSet[int]]
) -> tuple[Flow, ...]:
    """Combine the flows from all inputs of the operation `name` into those of its output.

    Where paths are added, a source is dropped if another path passes through a matrix that this
    source feeds: it arrives by the residual path around that matrix. Factors and concatenated
    features all stay, since each adds something. Mixture weights give way to what they mix.

    upstream: for each source, the sources that feed it.
    """
    if name in ("Mul", "Div", "Cat", "Stack", "Glu", *PRODUCTS):
        features = [
            flows for flows in operands if not all(flow.is_mixture_weight for flow in flows)
        ]
        return tuple(dict.fromkeys(flow for flows in features or operands for flow in flows))
    remaining: dict[Flow, None] = {}
    for index, flows in enumerate(operands):
        others = (*operands[:index], *operands[index + 1 :])
        other_sources = {flow.source for other in others for flow in other}
        feeding_others = set().union(*(upstream[source] for source in other_sources))
        remaining |= dict.fromkeys(flow for flow in flows if flow.source not in feeding_others)
    return tuple(remaining)
