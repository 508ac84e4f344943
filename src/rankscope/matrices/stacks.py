"""Attention whose heads are stacked in one parameter, or are modules of their own."""

from dataclasses import replace

from torch import nn

from rankscope.matrices.attention import Attention, assembled
from rankscope.matrices.projection_names import (
    HEAD_DIM,
    HEADS,
    SEPARATE,
    attribute,
    output_name,
    plain,
)
from rankscope.matrices.projections import output_projection, projection
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.separate import separate_names
from rankscope.matrices.wrappers import children

OUTPUT_STACKS = ("W_O", "o_proj", "out_proj", "o", "wo", "out")


def recognised_stacks(module: nn.Module, name: str) -> Attention | None:
    """Recognise parameters W_Q[head, in, unit] and W_O[head, unit, out], as in TransformerLens.

    The two last axes may be in the other order. The head width tells which is which: it is an
    attribute, or the axis that queries and values share with the stacked output.
    """
    by_name = {plain(key): key for key, tensor in module._parameters.items() if tensor is not None}
    roles = next((r for r in SEPARATE if set(map(plain, r)) <= by_name.keys()), None)
    if roles is None:
        return None
    keys = [by_name[plain(role)] for role in roles]
    shapes = [_shape(module, key) for key in keys]
    if any(len(shape) != 3 for shape in shapes):
        return None
    output = next((by_name[plain(key)] for key in OUTPUT_STACKS if plain(key) in by_name), None)
    unit = _unit_axis(module, name, shapes[0])
    readings = [
        _stack(dotted(name, key), shape, unit) for key, shape in zip(keys, shapes, strict=True)
    ]
    heads, kv_heads = shapes[0][0], shapes[1][0]
    return assembled(
        name,
        readings,
        _output_stack(module, name, output, heads, dict(readings[2].axes)["unit"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=shapes[0][unit],
    )


def _unit_axis(module: nn.Module, name: str, shape: tuple[int, ...]) -> int:
    """Return which axis of (head, ?, ?) has the units of a head."""
    heads, head_dim = attribute(module, HEADS), attribute(module, HEAD_DIM)
    if heads not in (None, shape[0]):
        raise ValueError(f"attention {name!r}: {heads} heads, but its stacks have {shape[0]}")
    if head_dim in shape[1:] and shape[1] != shape[2]:
        return shape.index(head_dim, 1)
    if head_dim is None and heads is not None and shape[1] != shape[2]:
        return 2 if shape[2] < shape[1] else 1  # a head is narrower than what it reads
    raise ValueError(f"attention {name!r}: stacks of shape {shape} do not tell units from inputs")


def _shape(module: nn.Module, key: str) -> tuple[int, ...]:
    parameter = module._parameters[key]
    assert parameter is not None
    return tuple(parameter.shape)


def _stack(parameter: str, shape: tuple[int, ...], unit: int) -> Reading:
    names = ("head", "in", "unit") if unit == 2 else ("head", "unit", "in")
    axes = tuple(zip(names, shape, strict=True))
    return Reading(parameter, parameter, "attention", axes, ("head", "unit"), ("in",))


def _output_stack(
    module: nn.Module, name: str, key: str | None, heads: int, head_dim: int
) -> Reading | None:
    if key is None:
        return output_projection(module, name, output_name(module))
    shape = _shape(module, key)
    if len(shape) != 3 or shape[0] != heads or head_dim not in shape[1:] or shape[1] == shape[2]:
        raise ValueError(
            f"attention {name!r}: {key!r} has shape {shape}, expected {heads} heads of {head_dim}"
        )
    parameter = dotted(name, key)
    names = ("head", "unit", "out") if shape[1] == head_dim else ("head", "out", "unit")
    axes = tuple(zip(names, shape, strict=True))
    return Reading(parameter, parameter, "attention", axes, ("out",), ("head", "unit"))


def module_per_head(module: nn.Module, name: str) -> tuple[Attention, ...]:
    """Recognise a list of heads that have their own q, k and v, and one output projection.

    Each head becomes an attention of one head, `<attention>.heads.0`, with its columns of the
    output. Empty if the module is no such thing.
    """
    lists = {
        key: child
        for key, child in children(module).items()
        if isinstance(child, nn.ModuleList) and None not in [*child] and len(child)
        if separate_names(child[0])
    }
    if len(lists) != 1:
        return ()
    ((key, heads),) = lists.items()
    if any(type(head) is not type(heads[0]) or _has_heads(head) for head in heads):
        return ()
    output = output_projection(module, name, output_name(module))
    return tuple(
        _one_head(head, dotted(name, key, str(i)), output, i, len(heads))
        for i, head in enumerate(heads)
    )


def _has_heads(module: nn.Module) -> bool:
    """Tell whether a module of a list is a whole attention: it has heads or an output."""
    return attribute(module, HEADS) not in (None, 1) or output_name(module) is not None


def _one_head(
    head: nn.Module, name: str, output: Reading | None, position: int, heads: int
) -> Attention:
    readings = [projection(head, name, path) for path in separate_names(head)]
    attention = assembled(name, readings, None, heads=1)
    if output is None:
        return attention
    width = readings[2].m
    if output.n != heads * width:
        raise ValueError(
            f"attention {name!r}: {heads} heads with values of width {width} do not fit the "
            f"{output.n} columns of {output.name!r}"
        )
    columns = output.split("in", (("list", heads), ("unit", width)))
    columns = columns.at("list", position, name=dotted(name, "o"), kind="block")
    return replace(attention, output=columns.split("unit", (("head", 1), ("unit", width))))
