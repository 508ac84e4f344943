"""Rules that follow a flow through one operation: to another axis, to a part of it, or to its end.

Operations without a rule are taken to work entry by entry, or along other axes.

In this example the six outputs of a layer are channels of 2 x 2 images:

    >>> def follow(flow: Flow, tensor: torch.Tensor) -> Flow:
    ...     ((_, step),) = steps_into((tensor.grad_fn, tensor.output_nr))
    ...     (after,) = moved(flow, step)
    ...     return after
    >>> images = torch.zeros(1, 6, 2, 2, requires_grad=True)
    >>> flow = Flow(source=0, axis=1, channels=6)

A slice keeps features 2, 3 and 4, which become channels 0, 1 and 2:

    >>> images = images[:, 2:5]
    >>> flow = follow(flow, images)
    >>> flow == Flow(source=0, axis=1, channels=3, first_feature=2)
    True

Flattening gives axis 1 twelve entries, four for each channel:

    >>> flat = images.flatten(1)
    >>> flow = follow(flow, flat)
    >>> flow == Flow(source=0, axis=1, channels=3, first_feature=2, entries_per_channel=4)
    True

Eight constant entries in front take the place of two channels:

    >>> flat = torch.cat([torch.zeros(1, 8), flat], dim=1)
    >>> follow(flow, flat) == replace(flow, first_channel=2)
    True

The six outputs of another layer become two heads of three features. The second head has features
3, 4 and 5:

    >>> heads = torch.zeros(1, 6, requires_grad=True).unflatten(1, (2, 3))
    >>> flow = follow(Flow(source=0, axis=1, channels=6), heads)
    >>> flow == Flow(source=0, axis=1, channels=2, features_per_channel=3)
    True
    >>> follow(flow, heads.unbind(1)[1]) == Flow(source=0, axis=None, channels=3, first_feature=3)
    True

A mean over all features leaves no flow:

    >>> ((_, step),) = steps_into((heads.mean((1, 2)).grad_fn, 0))
    >>> moved(flow, step)
    ()
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
    """Return the flow after one step; empty if none of its features arrive.

    A gated linear unit returns two flows, one for each half.
    """
    if step.name in ("Softmax", "SafeSoftmax"):
        return (replace(flow, is_mixture_weight=True),)
    if flow.lost_reason:
        return (flow,)
    if flow.state_index is not None and step.input_shape != step.output_shape:
        return _pick_state(flow, step)
    if move := MOVES.get(step.name):
        return move(flow, step)
    if "Rnn" in step.name:
        return _lose(flow, "a fused recurrent kernel takes it")
    if "ScaledDotProduct" in step.name:
        # Inputs are queries, keys and values: only values are passed on.
        return _carry(flow, step) if step.input_index == 2 else ()
    if hasattr(step.node, "_saved_keepdim"):
        return _reduce(flow, step)
    return _carry(flow, step)


def _lose(flow: Flow, reason: str) -> tuple[Flow, ...]:
    return (replace(flow, lost_reason=reason),)


def _carry(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Keep the channels through an operation on entries (with broadcasting) or on other axes.

    Pooling, padding and normalisation work along other axes.
    """
    if flow.axis is None:
        return (flow,)
    axis = len(step.output_shape) - len(step.input_shape) + flow.axis
    if axis >= 0 and step.output_shape[axis] == step.input_shape[flow.axis]:
        return (replace(flow, axis=axis),)
    if not step.output_shape:
        return ()
    return _lose(flow, f"{step.name} makes shape {step.output_shape} of {step.input_shape}")


def _permute(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if flow.axis is None:
        return (flow,)
    old_axes = permutation(step.node, len(step.input_shape))
    return (replace(flow, axis=old_axes.index(flow.axis)),)


def _reshape(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Find the new axis that spans the same entries in memory as the flow's axis did."""
    if flow.axis is None:
        return (flow,)
    size, stride = step.input_shape[flow.axis], math.prod(step.input_shape[flow.axis + 1 :])
    for axis, new_size in enumerate(step.output_shape):
        new_stride = math.prod(step.output_shape[axis + 1 :])
        if new_size * new_stride != size * stride or new_size == 1 < size:
            continue
        if new_stride == stride:
            return (replace(flow, axis=axis),)
        if new_stride < stride and stride % new_stride == 0:
            return _merge(replace(flow, axis=axis), stride // new_stride)
        if new_stride > stride and new_stride % stride == 0:
            return _divide(replace(flow, axis=axis), size, new_stride // stride)
    return _scatter(flow, size)


def _merge(flow: Flow, positions: int) -> tuple[Flow, ...]:
    """Merge each channel and the `positions` of the axes after it into one axis."""
    if flow.features_per_channel == positions:
        return (replace(flow, channels=flow.channels * positions, features_per_channel=1),)
    if flow.features_per_channel > 1 or flow.entries_per_channel > 1:
        return _lose(flow, "its reshaping cannot be followed")
    return (replace(flow, entries_per_channel=positions),)


def _divide(flow: Flow, size: int, parts: int) -> tuple[Flow, ...]:
    """Divide an axis of `size` entries into channels with `parts` entries each."""
    if flow.entries_per_channel == parts:
        return (replace(flow, entries_per_channel=1),)
    is_whole_axis = flow.channels == size
    if flow.entries_per_channel > 1 or flow.features_per_channel > 1 or not is_whole_axis:
        return _lose(flow, "its reshaping cannot be followed")
    return (replace(flow, channels=size // parts, features_per_channel=parts),)


def _scatter(flow: Flow, size: int) -> tuple[Flow, ...]:
    """Merge the axis into those before it: heads become part of the batch, or all features do."""
    if flow.features_per_channel == 1:
        return _lose(flow, "its outputs become positions, along which later matrices do not act")
    if flow.entries_per_channel > 1 or flow.channels != size:
        return _lose(flow, "its reshaping cannot be followed")
    features = flow.channels * flow.features_per_channel
    return (replace(flow, axis=None, channels=features, features_per_channel=1),)


def _select(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if flow.axis is None:
        return _lose(flow, f"{step.name} takes a part of it after its axes were rearranged")
    if flow.axis != step.dim:
        return (replace(flow, axis=flow.axis - 1 if step.dim < flow.axis else flow.axis),)
    features = flow.features_per_channel
    if features == 1:
        return _lose(flow, f"{step.name} takes a single feature of it")
    first = _selected_index(step) * features
    return (
        replace(flow, axis=None, first_feature=first, channels=features, features_per_channel=1),
    )


def _selected_index(step: Step) -> int:
    if step.name == "Unbind":
        return step.output_index
    return saved(step.node, "index") % step.input_shape[step.dim]


def _slice(flow: Flow, step: Step) -> tuple[Flow, ...]:
    size = step.input_shape[step.dim]
    if saved(step.node, "step") != 1 and flow.axis in (None, step.dim):
        return _lose(flow, "it is cut in steps")
    start = _slice_start(step, size)
    return _narrow(flow, step, start, start + step.output_shape[step.dim])


def _slice_start(step: Step, size: int) -> int:
    # A start that was not given, as in torch.ops.aten.slice(x, 0, None, 4), is saved as None.
    if step.node._saved_start is None:  # type: ignore[attr-defined]
        return 0
    start = saved(step.node, "start")
    return max(start + size if start < 0 else start, 0)


def _split(flow: Flow, step: Step) -> tuple[Flow, ...]:
    if "WithSizes" in step.name:
        sizes = [signed(size) for size in step.node._saved_split_sizes]  # type: ignore[attr-defined]
        start = sum(sizes[: step.output_index])
    else:
        start = step.output_index * saved(step.node, "split_size")
    return _narrow(flow, step, start, start + step.output_shape[step.dim])


def _narrow(flow: Flow, step: Step, start: int, stop: int) -> tuple[Flow, ...]:
    """Keep entries start .. stop of one axis of the input."""
    if step.input_shape[step.dim] == stop - start:
        return (flow,)
    if flow.axis is None:
        return _lose(flow, f"{step.name} takes a part of it after its axes were rearranged")
    if flow.axis != step.dim:
        return (flow,)
    if flow.entries_per_channel > 1 or flow.features_per_channel > 1:
        return _lose(flow, f"{step.name} takes a part of it after it was reshaped")
    low = max(start, flow.first_channel)
    high = min(stop, flow.first_channel + flow.channels)
    if low >= high:
        return ()
    first_feature = flow.first_feature + low - flow.first_channel
    return (
        replace(flow, first_feature=first_feature, channels=high - low, first_channel=low - start),
    )


def _glu(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Keep both halves: a gated linear unit multiplies the first by a function of the second."""
    half = step.output_shape[step.dim]
    return (*_narrow(flow, step, 0, half), *_narrow(flow, step, half, 2 * half))


def _concatenate(flow: Flow, step: Step) -> tuple[Flow, ...]:
    dim = saved(step.node, "dim") % len(step.output_shape)
    if flow.axis is None:
        return _lose(flow, "it is concatenated after its axes were rearranged")
    if flow.axis != dim:
        return (flow,)
    offset = _concatenation_offset(step, dim)
    if offset is None:
        return _lose(flow, "it is concatenated with several constants of unknown size")
    entries = flow.entries_per_channel
    if flow.features_per_channel > 1 or offset % entries or step.output_shape[dim] % entries:
        return _lose(flow, "it is concatenated after being reshaped")
    return (replace(flow, first_channel=flow.first_channel + offset // entries),)


def _concatenation_offset(step: Step, dim: int) -> int | None:
    """Position along `dim` at which this input begins, or None if it cannot be told.

    Autograd keeps no shapes of constants. Their total size is known, so one constant is no problem.
    """
    edges = inputs_of(step.node)
    sizes = [None if edge is None else shape_of(edge)[dim] for edge in edges]
    sizes_before = sizes[: step.input_index]
    constants_before = sizes_before.count(None)
    if 0 < constants_before < sizes.count(None):
        return None
    offset = sum(size for size in sizes_before if size is not None)
    constant_size = step.output_shape[dim] - sum(size for size in sizes if size is not None)
    return offset + (constant_size if constants_before else 0)


def _stack(flow: Flow, step: Step) -> tuple[Flow, ...]:
    dim = saved(step.node, "dim") % len(step.output_shape)
    if flow.axis is None or flow.axis < dim:
        return (flow,)
    return (replace(flow, axis=flow.axis + 1),)


def _reduce(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Keep the features through a sum or mean over other axes; over their own axis they vanish."""
    saved_dim: tuple[int, ...] | int | None = getattr(step.node, "_saved_dim", None)
    listed = (saved_dim,) if isinstance(saved_dim, int) else saved_dim or ()
    dims = {signed(dim) % len(step.input_shape) for dim in listed}
    if flow.axis is None:
        return (flow,)
    if not dims or flow.axis in dims:
        return ()
    if step.node._saved_keepdim:  # type: ignore[attr-defined]
        return (flow,)
    return (replace(flow, axis=flow.axis - sum(dim < flow.axis for dim in dims)),)


def _multiply(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Keep the rows of the left and the columns of the right factor of two activations."""
    left, right = PRODUCTS[step.name]
    if flow.axis is None or step.input_index not in (left, right):
        return _carry(flow, step)
    axis_from_end = len(step.input_shape) - flow.axis
    summed_axis_from_end = 1 if step.input_index == left else 2
    if axis_from_end == summed_axis_from_end:
        return ()
    return (replace(flow, axis=len(step.output_shape) - axis_from_end),)


def _pick_state(flow: Flow, step: Step) -> tuple[Flow, ...]:
    """Pick one of a recurrent module's final states, stored (layer and direction, batch, unit)."""
    assert flow.state_index is not None
    if step.name not in ("Select", "Unbind", "Slice") or step.dim != 0:
        return _lose(
            flow, f"{step.name} rearranges the final states; take them apart by layer first"
        )
    if step.name == "Slice":
        index = flow.state_index - _slice_start(step, step.input_shape[0])
        return (replace(flow, state_index=index),) if 0 <= index < step.output_shape[0] else ()
    if _selected_index(step) != flow.state_index:
        return ()
    return _select(replace(flow, state_index=None), step)


MOVES: dict[str, Callable[[Flow, Step], tuple[Flow, ...]]] = {
    **dict.fromkeys(("T", "Transpose", "Permute"), _permute),
    **dict.fromkeys(RESHAPES, _reshape),
    **dict.fromkeys(("Select", "Unbind"), _select),
    "Slice": _slice,
    **dict.fromkeys(("Split", "UnsafeSplit", "SplitWithSizes"), _split),
    "Glu": _glu,
    "Cat": _concatenate,
    "Stack": _stack,
    **dict.fromkeys(PRODUCTS, _multiply),
}
