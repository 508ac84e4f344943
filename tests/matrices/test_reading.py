"""Readings rearrange the entries of a tensor and refuse one of another shape."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.matrices import Reading


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw fields of a reading with random axes, each an output, an input or fixed.

    We do not draw the reading itself: beartype checks at random, which Hypothesis forbids inside a
    strategy.
    """
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    axes = tuple((f"a{i}", size) for i, size in enumerate(sizes))
    order = draw(st.permutations(axes))
    outputs = draw(st.integers(1, len(axes) - 1))
    inputs = draw(st.integers(1, len(axes) - outputs))
    fixed = order[outputs + inputs :]
    return dict(
        axes=axes,
        outputs=tuple(name for name, _ in order[:outputs]),
        inputs=tuple(name for name, _ in order[outputs : outputs + inputs]),
        index=tuple((name, draw(st.integers(0, size - 1))) for name, size in fixed),
    )


@given(fields())
@settings(max_examples=30, deadline=None)
def test_a_reading_is_an_einsum(fields: dict[str, Any]) -> None:
    reading = Reading(name="matrix", parameter="tensor", kind="test", **fields)
    tensor = torch.arange(math.prod(size for _, size in reading.axes))
    view = reading.view(tensor)
    letters = {name: chr(ord("a") + i) for i, (name, _) in enumerate(reading.axes)}
    stored = tensor.reshape([size for _, size in reading.axes])
    for name, position in reading.index:
        axis = [axis for axis, _ in reading.axes].index(name)
        stored = stored.narrow(axis, position, 1)
    equation = "".join(letters.values()) + "->"
    equation += "".join(letters[name] for name in (*reading.outputs, *reading.inputs))
    expected = torch.einsum(equation, stored).reshape(reading.m, reading.n)
    torch.testing.assert_close(view.W, expected)
    torch.testing.assert_close(reading.transposed().view(tensor).W, expected.mT)
    assert (view.m, view.n) == (
        math.prod(size for _, size in view.out_axes),
        math.prod(size for _, size in view.in_axes),
    )


def test_views_share_memory_where_strides_allow() -> None:
    tensor = torch.zeros(6, 4)
    linear = Reading("w", "w", "linear", (("out", 6), ("in", 4)), ("out",), ("in",))
    head = linear.split("out", (("head", 2), ("unit", 3))).at("head", 1, name="h1", kind="head")
    head.view(tensor).W.fill_(1)
    linear.transposed().view(tensor).W[:, 0] = 2
    torch.testing.assert_close(tensor[3:], torch.ones(3, 4))
    torch.testing.assert_close(tensor[0], torch.full((4,), 2.0))


def test_narrow_split_and_at_agree_with_slices() -> None:
    tensor = torch.arange(40.0).reshape(4, 10)
    stored_transposed = Reading("w", "w", "linear", (("in", 4), ("out", 10)), ("out",), ("in",))
    block = stored_transposed.narrow("out", 2, 8, name="block", kind="block")
    head = block.split("out", (("head", 3), ("unit", 2))).at("head", 2, name="h", kind="head")
    torch.testing.assert_close(block.view(tensor).W, tensor[:, 2:8].T)
    torch.testing.assert_close(head.view(tensor).W, tensor[:, 6:8].T)
    assert head.part_of == block.part_of == "w"


def test_a_changed_shape_is_an_error() -> None:
    reading = Reading("fc", "fc.weight", "linear", (("out", 6), ("in", 4)), ("out",), ("in",))
    with pytest.raises(ValueError, match=r"matrix 'fc': tensor 'fc.weight' has shape \(7, 4\)"):
        reading.view(torch.zeros(7, 4))
