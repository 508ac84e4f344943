"""Autograd graph of one forward pass: its nodes in order, and the products with matrices.

A node stands for an operation. An edge (node, number) stands for the node's output of that number.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor
from torch.autograd.graph import Node

Edge = tuple[Node, int]
Shape = tuple[int, ...]

# Positions of the left and the right factor of a product among a node's inputs.
PRODUCTS = {
    "Addmm": (1, 2),
    "Addmv": (1, 2),
    "Baddbmm": (1, 2),
    "Bmm": (0, 1),
    "GroupedMm": (0, 1),
    "Mm": (0, 1),
    "Mv": (0, 1),
}
LOOKUPS = ("Embedding", "EmbeddingBag")
RESHAPES = ("View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Alias")


@dataclass(frozen=True)
class Use:
    """One product of a stored matrix with an activation.

    activation: the tensor the matrix acts on; None if that depends on no parameter.
    in_axis: the activation's axis that is summed over.
    out_axis: the output's axis along which the result lies.
    sums_last: whether the sum is over the last axis of the stored tensor; None if unknown.
    expert: which matrix of a stack was used; None if the tensor is no stack.
    """

    parameter: str
    node: Node
    activation: Edge | None
    in_axis: int
    out_axis: int
    sums_last: bool | None = None
    expert: int | None = None


def operation(node: Node) -> str:
    """Return the name of a node's operation: "Addmm" for AddmmBackward0."""
    return re.sub(r"Backward\d*$", "", node.name())


def signed(value: int) -> int:
    """Undo the conversion of saved axes and positions to unsigned: 2^64 - 1 is -1."""
    return value - 2**64 if value >= 2**63 else value


def saved(node: Node, field: str) -> int:
    """Return a whole number that the node saved for its backward pass."""
    return signed(getattr(node, f"_saved_{field}"))


def shape_of(edge: Edge) -> Shape:
    """Return the shape of the tensor that an edge stands for."""
    node, number = edge
    return tuple(node._input_metadata[number].shape)


def inputs_of(node: Node) -> list[Edge | None]:
    """Return the tensors a node worked on, with None for those without a gradient."""
    return [None if source is None else (source, number) for source, number in node.next_functions]


def in_order(outputs: Iterable[Tensor]) -> list[Node]:
    """Return every node behind the outputs, each after the nodes it depends on."""
    stack = [(tensor.grad_fn, False) for tensor in outputs]
    seen: dict[Node, None] = {}
    order: list[Node] = []
    while stack:
        node, finished = stack.pop()
        if node is None:
            continue
        if finished:
            order.append(node)
        elif node not in seen:
            seen[node] = None
            stack.append((node, True))
            stack.extend((source, False) for source, _ in node.next_functions)
    return order


@dataclass(frozen=True)
class _Stored:
    """A tensor that is a stored matrix, at most rearranged.

    `flipped` tells whether its last two axes are swapped; None if unknown.
    """

    parameter: str
    flipped: bool | None = False
    expert: int | None = None


def uses(order: Iterable[Node], names: Mapping[int, str]) -> dict[Node, Use]:
    """Return the products, convolutions and look-ups with tensors named in `names` (by id)."""
    stored: dict[Node, _Stored | None] = {}
    uses_by_node: dict[Node, Use] = {}
    for node in order:
        if use := _use(node, stored):
            uses_by_node[node] = use
        elif _only_parameters(node, stored):
            stored[node] = _stored_matrix(node, stored, names)
    return uses_by_node


def _use(node: Node, stored: Mapping[Node, _Stored | None]) -> Use | None:
    name, inputs = operation(node), inputs_of(node)
    weights = [None if edge is None else stored.get(edge[0]) for edge in inputs]
    out_axes = len(shape_of((node, 0)))
    if name in LOOKUPS and (weight := weights[0]):
        return Use(weight.parameter, node, None, 0, out_axes - 1, sums_last=False)
    if name == "Convolution" and (weight := weights[1]):
        return Use(weight.parameter, node, inputs[0], 1, 1)
    # A matrix times a vector that no parameter made is how spectral norm scales a weight.
    if name not in PRODUCTS or (name == "Mv" and None in inputs):
        return None
    left, right = PRODUCTS[name]
    # Two stored factors: learned queries before a Linear, which transposes its weight, or a weight
    # made of factors.
    if (weight := weights[right]) and (weights[left] is None or weight.flipped):
        sums_last = weight.flipped
        in_axis = 0 if (edge := inputs[left]) is None else len(shape_of(edge)) - 1
        return Use(weight.parameter, node, edge, in_axis, out_axes - 1, sums_last, weight.expert)
    if (weight := weights[left]) and weights[right] is None:
        sums_last = None if weight.flipped is None else not weight.flipped
        in_axis = 0 if (edge := inputs[right]) is None else max(len(shape_of(edge)) - 2, 0)
        return Use(
            weight.parameter, node, edge, in_axis, max(out_axes - 2, 0), sums_last, weight.expert
        )
    return None


def _only_parameters(node: Node, stored: Mapping[Node, _Stored | None]) -> bool:
    """Tell whether the node is a parameter, or was made from parameters alone."""
    if hasattr(node, "variable"):
        return True
    inputs = [edge for edge in inputs_of(node) if edge is not None]
    return bool(inputs) and all(source in stored for source, _ in inputs)


def _stored_matrix(
    node: Node, stored: Mapping[Node, _Stored | None], names: Mapping[int, str]
) -> _Stored | None:
    """Return the one stored matrix that the node's output is; None if it is no single one."""
    if hasattr(node, "variable"):
        parameter = names.get(id(node.variable))
        return None if parameter is None else _Stored(parameter)
    inputs = [edge for edge in inputs_of(node) if edge is not None]
    matrices = [(matrix, edge) for edge in inputs if (matrix := stored[edge[0]]) is not None]
    if len({matrix for matrix, _ in matrices}) > 1:
        # The factors of a weight: the one of the weight's shape stands for it (weight norm).
        shape = shape_of((node, 0))
        matrices = [(matrix, edge) for matrix, edge in matrices if shape_of(edge) == shape]
    if len({matrix for matrix, _ in matrices}) != 1 or operation(node) in PRODUCTS:
        return None
    matrix, edge = matrices[0]
    return _rearranged(matrix, node, shape_of(edge))


def _rearranged(matrix: _Stored, node: Node, before: Shape) -> _Stored:
    name, after = operation(node), shape_of((node, 0))
    if name == "Select" and len(before) == 3 and saved(node, "dim") % 3 == 0:
        return replace(matrix, expert=saved(node, "index") % before[0])
    if name in ("T", "Transpose", "Permute") and len(before) > 1:
        *_, row, column = permutation(node, len(before))
        swapped = {
            (len(before) - 2, len(before) - 1): False,
            (len(before) - 1, len(before) - 2): True,
        }
        turn = swapped.get((row, column))
        known = turn is not None and matrix.flipped is not None
        return replace(matrix, flipped=matrix.flipped != turn if known else None)
    if name in RESHAPES and before[-2:] != after[-2:]:
        return replace(matrix, flipped=None)
    return matrix


def permutation(node: Node, axes: int) -> tuple[int, ...]:
    """Return the old axis at each new position, for a T, Transpose or Permute node."""
    name = operation(node)
    if name == "Permute":
        return tuple(signed(axis) % axes for axis in node._saved_dims)  # type: ignore[attr-defined]
    order = list(range(axes))
    first, second = (0, axes - 1) if name == "T" else (saved(node, "dim0"), saved(node, "dim1"))
    order[first], order[second] = order[second], order[first]
    return tuple(order)
