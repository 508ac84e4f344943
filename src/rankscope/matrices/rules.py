"""Rules that read each type of layer: from a module to readings of the tensors it owns.

To add a layer type, register a function of module and name with `@view_rule.register(MyLayer)`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import UninitializedParameter

from rankscope.matrices.experts import expert_readings
from rankscope.matrices.reading import Axes, Reading, dotted

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": ""}
# Names of learned positions, such as `pos_embed`, `position_embeddings`, `absolute_pos_embed`.
POSITIONS = re.compile(r"(\w*_)?pos(ition(al)?)?_?emb\w*", re.IGNORECASE)


@singledispatch
def view_rule(module: nn.Module, name: str) -> tuple[Reading, ...]:
    """Return the matrices in the tensors that the module `name` owns.

    A tensor of two or more axes that no reading covers is flattened to its first axis.
    """
    if "Conv1D" in {base.__name__ for base in type(module).__mro__}:
        return _weight(module, name)
    return expert_readings(module, name)


def owned_shape(module: nn.Module, name: str, key: str, *, axes: int) -> tuple[int, ...] | None:
    """Return the shape of a parameter; None if the module owns none, as when parametrized."""
    parameter = module._parameters.get(key)
    if parameter is None:
        return None
    tensor, layer = dotted(name, key), type(module).__name__
    if isinstance(parameter, UninitializedParameter):
        raise ValueError(f"tensor {tensor!r} of a {layer} has no shape yet; run one forward pass")
    if parameter.ndim != axes:
        raise ValueError(
            f"tensor {tensor!r} of a {layer}: expected {axes} axes, got shape "
            f"{tuple(parameter.shape)}; if these are shards, use fully_shard (FSDP2) or read "
            "inside FullyShardedDataParallel.summon_full_params"
        )
    return tuple(parameter.shape)


@view_rule.register(nn.Linear)
@view_rule.register(nn.Embedding)
@view_rule.register(nn.EmbeddingBag)
def _weight(module: nn.Module, name: str) -> tuple[Reading, ...]:
    shape = owned_shape(module, name, "weight", axes=2)
    if shape is None:
        return ()
    if isinstance(module, nn.Linear):
        return (linear_reading(name, shape),)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return (embedding_reading(name, shape),)
    return (transposed_linear_reading(name, shape),)  # GPT-2's Conv1D


def linear_reading(name: str, shape: tuple[int, ...]) -> Reading:
    """Read a weight stored (out, in)."""
    return _two_axes(name, "linear", (("out", shape[0]), ("in", shape[1])))


def transposed_linear_reading(name: str, shape: tuple[int, ...]) -> Reading:
    """Read a weight stored (in, out)."""
    return _two_axes(name, "linear", (("in", shape[0]), ("out", shape[1])))


def embedding_reading(name: str, shape: tuple[int, ...]) -> Reading:
    """Read a table stored (token, out)."""
    return _two_axes(name, "embedding", (("token", shape[0]), ("out", shape[1])))


def _two_axes(name: str, kind: str, axes: Axes) -> Reading:
    inputs = tuple(axis for axis, _ in axes if axis != "out")
    # The weight of a bare layer, which has no name, is called "weight".
    return Reading(name or "weight", dotted(name, "weight"), kind, axes, ("out",), inputs)


@view_rule.register(_ConvNd)
def _conv(module: _ConvNd, name: str) -> tuple[Reading, ...]:
    shape = owned_shape(module, name, "weight", axes=2 + len(module.kernel_size))
    if shape is None:
        return ()
    transposed = isinstance(module, _ConvTransposeNd)
    return conv_readings(name, shape, groups=module.groups, transposed=transposed)


def conv_readings(
    name: str, shape: tuple[int, ...], *, groups: int = 1, transposed: bool = False
) -> tuple[Reading, ...]:
    """Read filters as (out, in * taps), one matrix per group; if `transposed`, stored in first.

    Groups with one input or one output channel are no matrices by themselves. They are the rows of
    one: a depthwise convolution is read as (channels, taps).
    """
    first, second, *taps = shape
    tap_axes = tuple((f"tap{i}", size) for i, size in enumerate(taps))
    names = ("in", "out") if transposed else ("out", "in")
    axes: Axes = ((names[0], first // groups), (names[1], second), *tap_axes)
    whole = Reading(
        name=name or "weight",
        parameter=dotted(name, "weight"),
        kind="conv_transpose" if transposed else "conv",
        axes=axes if groups == 1 else (("group", groups), *axes),
        outputs=("out",) if groups == 1 else ("group", "out"),
        inputs=("in", *(tap for tap, _ in tap_axes)),
    )
    if groups == 1:
        return (whole,)
    if first == groups or second == 1:
        return (replace(whole, kind="depthwise"),)
    # A group is no part: groups share no inputs, so there is no whole matrix.
    return tuple(
        replace(whole, name=f"{whole.name}.g{group}", outputs=("out",), index=(("group", group),))
        for group in range(groups)
    )


@view_rule.register(nn.RNNBase)
@view_rule.register(nn.RNNCellBase)
def _recurrent(module: nn.RNNBase | nn.RNNCellBase, name: str) -> tuple[Reading, ...]:
    kind, bidirectional = recurrent_kind(module), getattr(module, "bidirectional", False)
    readings: list[Reading] = []
    for key in module._parameters:
        shape = owned_shape(module, name, key, axes=2) if key.startswith("weight_") else None
        if shape is not None:
            halves = bidirectional and "_l0" not in key
            readings += recurrent_readings(name, key, shape, kind=kind, halves=halves)
    return tuple(readings)


def recurrent_kind(module: nn.RNNBase | nn.RNNCellBase) -> str:
    """Return "lstm", "gru" or "rnn", for a layer or a cell."""
    if isinstance(module, nn.RNNBase):
        return {"LSTM": "lstm", "GRU": "gru"}.get(module.mode, "rnn")
    # The class decides: under spectral norm, reading the weight would change the module.
    return (
        "lstm"
        if isinstance(module, nn.LSTMCell)
        else "gru"
        if isinstance(module, nn.GRUCell)
        else "rnn"
    )


def recurrent_readings(
    name: str, key: str, shape: tuple[int, ...], *, kind: str, halves: bool
) -> tuple[Reading, ...]:
    """Read `weight_ih_l0_reverse` as `l0.reverse.ih` and a cell's `weight_ih` as `ih`.

    Returns the whole matrix and its gates. With `halves`, the layer's input has two halves, from
    the two directions of the layer below.
    """
    _, role, *place = key.split("_")
    gates = GATES[kind] if role != "hr" else ""
    rows: Axes = (("out", shape[0]),)
    if gates:
        rows = (("gate", len(gates)), ("out", shape[0] // len(gates)))
    columns: Axes = (("in", shape[1]),)
    if halves and role == "ih":
        columns = (("direction", 2), ("in", shape[1] // 2))
    whole = Reading(
        name=dotted(name, *place, role),
        parameter=dotted(name, key),
        kind=kind,
        axes=(*rows, *columns),
        outputs=tuple(axis for axis, _ in rows),
        inputs=tuple(axis for axis, _ in columns),
    )
    parts = (
        whole.at("gate", position, name=f"{whole.name}.{gate}", kind="gate")
        for position, gate in enumerate(gates)
    )
    return (whole, *parts)


@view_rule.register(nn.MultiheadAttention)
def _multihead(module: nn.MultiheadAttention, name: str) -> tuple[Reading, ...]:
    packed = owned_shape(module, name, "in_proj_weight", axes=2)
    if packed is not None:
        return (packed_reading(name, packed),)
    shapes = {role: owned_shape(module, name, f"{role}_proj_weight", axes=2) for role in "qkv"}
    return tuple(
        projection_reading(name, role, shape) for role, shape in shapes.items() if shape is not None
    )


def packed_reading(name: str, shape: tuple[int, ...]) -> Reading:
    """Read `in_proj_weight`: queries, keys and values one after the other."""
    return Reading(
        name=dotted(name, "qkv"),
        parameter=dotted(name, "in_proj_weight"),
        kind="attention",
        axes=(("qkv", 3), ("out", shape[0] // 3), ("in", shape[1])),
        outputs=("qkv", "out"),
        inputs=("in",),
    )


def projection_reading(name: str, role: str, shape: tuple[int, ...]) -> Reading:
    """Read `q_proj_weight` or a sibling, stored separately if keys or values have other widths."""
    parameter, axes = dotted(name, f"{role}_proj_weight"), (("out", shape[0]), ("in", shape[1]))
    return Reading(dotted(name, role), parameter, "attention", axes, ("out",), ("in",))


def is_vector(shape: tuple[int, ...]) -> bool:
    """Tell whether at most one axis is longer than 1, as in class tokens and gains."""
    return sum(size != 1 for size in shape) <= 1


def is_stacked_bias(
    parameter: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> bool:
    """Tell whether a tensor holds one bias for every matrix of a stack that stands beside it."""
    stem = parameter.removesuffix("bias")
    stacks = (shapes.get(name, ()) for name in (stem.rstrip("._"), f"{stem}weight"))
    return (
        stem != parameter
        and len(shape) == 2
        and any(len(stack) == 3 and stack[0] == shape[0] for stack in stacks)
    )


def flattened_reading(parameter: str, shape: tuple[int, ...]) -> Reading:
    """Read the first axis longer than 1 against all others, for tensors that no rule covers.

    Learned positions, recognised by their name, are read as (positions, width).
    """
    if POSITIONS.fullmatch(parameter.rpartition(".")[2]) and not is_vector(shape):
        return _positions_reading(parameter, shape)
    first = next((axis for axis, size in enumerate(shape[:-1]) if size != 1), len(shape) - 2)
    axes = tuple((f"axis{i}", size) for i, size in enumerate(shape))
    names = tuple(axis for axis, _ in axes)
    matrix = parameter.removesuffix(".weight")
    return Reading(matrix, parameter, "flattened", axes, names[: first + 1], names[first + 1 :])


def _positions_reading(parameter: str, shape: tuple[int, ...]) -> Reading:
    """Read positions stored (1, positions, width), or on a grid (1, rows, columns, width).

    A square grid after another size is stored (1, width, rows, columns).
    """
    sizes = [size for size in shape if size != 1]
    width_first = len(sizes) == 3 and sizes[0] != sizes[1] == sizes[2]
    width = 0 if width_first else len(sizes) - 1
    grid = [f"position{i}" for i in range(len(sizes) - 1)] if len(sizes) > 2 else ["position"]
    names = [*grid[:width], "width", *grid[width:]]
    axes = tuple(zip(names, sizes, strict=True))
    return Reading(parameter, parameter, "position", axes, tuple(grid), ("width",))
