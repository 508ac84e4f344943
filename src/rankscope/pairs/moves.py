"""What each operation does to a flow: moves its axis, cuts or shifts it, or loses it, and why.

Operations not named here are taken to work entry by entry, or along other axes.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from rankscope.pairs.flow import Flow, Step
from rankscope.pairs.graph import (
    PRODUCTS,
    RESHAPES,
    inputs_of,
    permutation,
    saved,
    shape_of,
    signed,
)


def moved(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """The flow in one input of a node as it shows in one output; empty where it does not."""
    if step.name in ("Softmax", "SafeSoftmax"):
        return (replace(flow, weighs=True),)
    if flow.lost:
        return (flow,)
    if flow.slot is not None and step.before != step.after:
        return _picked_state(flow, step)
    if move := MOVES.get(step.name):
        return move(flow, step)
    if "Rnn" in step.name:
        return _lose(flow, "a fused recurrent kernel takes it")
    if "ScaledDotProduct" in step.name:
        return _kept(flow, step) if step.place == 2 else ()
    if hasattr(step.node, "_saved_keepdim"):
        return _reduced(flow, step)
    return _kept(flow, step)


def _lose(flow: Flow, why: str) -> tuple[Flow, ...]:
    return (replace(flow, lost=why),)


def _kept(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Entry by entry, with broadcasting, or along other axes (pooling, padding, normalisation)."""
    before, after, axis = step.before, step.after, flow.axis
    if axis is None:
        return (flow,)
    place = len(after) - len(before) + axis
    if place >= 0 and after[place] == before[axis]:
        return (replace(flow, axis=place),)
    if not after:
        return ()
    return _lose(flow, f"{step.name} makes shape {after} of {before}")


def _permuted(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if flow.axis is None:
        return (flow,)
    return (replace(flow, axis=permutation(step.node, len(step.before)).index(flow.axis)),)


def _reshaped(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if flow.axis is None:
        return (flow,)
    size, stride = step.before[flow.axis], math.prod(step.before[flow.axis + 1 :])
    strides = [math.prod(step.after[place + 1 :]) for place in range(len(step.after))]
    for place, (new_size, new_stride) in enumerate(zip(step.after, strides, strict=True)):
        if new_size * new_stride != size * stride or new_size == 1 < size:
            continue
        if new_stride == stride:
            return (replace(flow, axis=place),)
        if new_stride < stride and stride % new_stride == 0:
            return _merged(replace(flow, axis=place), stride // new_stride)
        if new_stride > stride and new_stride % stride == 0:
            return _divided(replace(flow, axis=place), size, new_stride // stride)
    return _scattered(flow, size)


def _merged(flow: Flow, positions: int) -> tuple[Flow, ...]:
    """Each channel and the positions after it became one axis."""
    if flow.split == positions:
        return (replace(flow, count=flow.count * positions, split=1),)
    if flow.split > 1 or flow.positions > 1:
        return _lose(flow, "its reshaping cannot be followed")
    return (replace(flow, positions=positions),)


def _divided(flow: Flow, size: int, parts: int) -> tuple[Flow, ...]:
    """The axis became channels with `parts` entries each."""
    if flow.positions == parts:
        return (replace(flow, positions=1),)
    if flow.positions > 1 or flow.split > 1 or flow.count != size:
        return _lose(flow, "its reshaping cannot be followed")
    return (replace(flow, count=size // parts, split=parts),)


def _scattered(flow: Flow, size: int) -> tuple[Flow, ...]:
    """The axis went into those before it: heads that became part of the batch, or all features."""
    if flow.split == 1:
        return _lose(flow, "its outputs become positions, along which later matrices do not act")
    if flow.positions > 1 or flow.count != size:
        return _lose(flow, "its reshaping cannot be followed")
    return (replace(flow, axis=None, count=flow.count * flow.split, split=1),)


def _selected(flow: Flow, step: Step) -> tuple[Flow, ...]:
    unbound = step.name == "Unbind"
    index = step.number if unbound else saved(step.node, "index") % step.before[step.dim]
    if flow.axis is None:
        return _lose(flow, f"{step.name} takes a part of it after its axes were rearranged")
    if flow.axis != step.dim:
        return (replace(flow, axis=flow.axis - (step.dim < flow.axis)),)
    if flow.split > 1:
        return (replace(flow, axis=None, first=index * flow.split, count=flow.split, split=1),)
    return _lose(flow, f"{step.name} takes a single feature of it")


def _sliced(flow: Flow, step: Step) -> tuple[Flow, ...]:
    size = step.before[step.dim]
    if saved(step.node, "step") != 1 and flow.axis in (None, step.dim):
        return _lose(flow, "it is cut in steps")
    start = saved(step.node, "start")
    start = max(start + size if start < 0 else start, 0)
    return _narrowed(flow, step, start, start + step.after[step.dim])


def _split(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if "WithSizes" in step.name:
        sizes = [signed(size) for size in step.node._saved_split_sizes]  # type: ignore[attr-defined]
        start = sum(sizes[: step.number])
    else:
        start = step.number * saved(step.node, "split_size")
    return _narrowed(flow, step, start, start + step.after[step.dim])


def _narrowed(flow: Flow, step: Step, start: int, stop: int) -> tuple[Flow, ...]:
    """Entries start .. stop of one axis of the input."""
    if step.before[step.dim] == stop - start:
        return (flow,)
    if flow.axis is None:
        return _lose(flow, f"{step.name} takes a part of it after its axes were rearranged")
    if flow.axis != step.dim:
        return (flow,)
    if flow.positions > 1 or flow.split > 1:
        return _lose(flow, f"{step.name} takes a part of it after it was reshaped")
    low, high = max(start, flow.start), min(stop, flow.start + flow.count)
    if low >= high:
        return ()
    first = flow.first + low - flow.start
    return (replace(flow, first=first, count=high - low, start=low - start),)


def _halves(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """A gated linear unit multiplies the first half by a function of the second: both arrive."""
    half = step.after[step.dim]
    return (*_narrowed(flow, step, 0, half), *_narrowed(flow, step, half, 2 * half))


def _concatenated(flow: Flow, step: Step) -> tuple[Flow, ...]:
    dim = saved(step.node, "dim") % len(step.after)
    if flow.axis is None:
        return _lose(flow, "it is concatenated after its axes were rearranged")
    if flow.axis != dim:
        return (flow,)
    start = _offset(step, dim)
    if start is None:
        return _lose(flow, "it is concatenated with several constants of unknown size")
    if flow.split > 1 or start % flow.positions or step.after[dim] % flow.positions:
        return _lose(flow, "it is concatenated after being reshaped")
    return (replace(flow, start=flow.start + start // flow.positions),)


def _offset(step: Step, dim: int) -> int | None:
    """Where this input begins; None where it cannot be told, since constants have no shape here."""
    edges = inputs_of(step.node)
    sizes = [None if edge is None else shape_of(edge)[dim] for edge in edges]
    known = sum(size for size in sizes if size is not None)
    unknown = sizes[: step.place].count(None)
    if 0 < unknown < sizes.count(None):
        return None
    before = sum(size for size in sizes[: step.place] if size is not None)
    return before + (step.after[dim] - known if unknown else 0)


def _stacked(flow: Flow, step: Step) -> tuple[Flow, ...]:
    dim = saved(step.node, "dim") % len(step.after)
    return (flow if flow.axis is None else replace(flow, axis=flow.axis + (dim <= flow.axis)),)


def _reduced(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """A sum or mean over axes: features summed over are features no more."""
    given: tuple[int, ...] | int | None = getattr(step.node, "_saved_dim", None)
    listed = (given,) if isinstance(given, int) else given or ()
    dims = {signed(dim) % len(step.before) for dim in listed}
    if flow.axis is None:
        return (flow,)
    if not dims or flow.axis in dims:
        return ()
    if step.node._saved_keepdim:  # type: ignore[attr-defined]
        return (flow,)
    return (replace(flow, axis=flow.axis - sum(dim < flow.axis for dim in dims)),)


def _multiplied(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """A product of two activations keeps the rows of the left and the columns of the right one."""
    left, right = PRODUCTS[step.name]
    if flow.axis is None or step.place not in (left, right):
        return _kept(flow, step)
    from_end = len(step.before) - flow.axis
    if from_end == (1 if step.place == left else 2):
        return ()
    return (replace(flow, axis=len(step.after) - from_end),)


def _picked_state(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """One of a recurrent module's final states: (layer and direction, batch, unit) at one place."""
    assert flow.slot is not None
    if step.name not in ("Select", "Unbind", "Slice") or step.dim != 0:
        return _lose(
            flow, f"{step.name} rearranges the final states; take them apart by layer first"
        )
    if step.name == "Slice":
        place = flow.slot - saved(step.node, "start") % step.before[0]
        return (replace(flow, slot=place),) if 0 <= place < step.after[0] else ()
    index = step.number if step.name == "Unbind" else saved(step.node, "index") % step.before[0]
    return _selected(replace(flow, slot=None), step) if index == flow.slot else ()


MOVES: dict[str, Callable[[Flow, Step], tuple[Flow, ...]]] = {
    "T": _permuted,
    "Transpose": _permuted,
    "Permute": _permuted,
    **dict.fromkeys(RESHAPES, _reshaped),
    "Select": _selected,
    "Unbind": _selected,
    "Slice": _sliced,
    "Split": _split,
    "UnsafeSplit": _split,
    "SplitWithSizes": _split,
    "Glu": _halves,
    "Cat": _concatenated,
    "Stack": _stacked,
    **dict.fromkeys(PRODUCTS, _multiplied),
}
