"""Readings: how a matrix is read out of a stored tensor.

A `Reading` is plain data: the tensor, how its axes split, which are outputs and which inputs. The
same readings serve model, state dict and staged copy, so these agree by construction. A run stores
its readings (the manifest) as JSON.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from jaxtyping import Num
from torch import Tensor

Axes = tuple[tuple[str, int], ...]
T = TypeVar("T")


def dotted(*parts: str) -> str:
    """Join the parts by dots, without empty ones such as the name of the root module."""
    return ".".join(part for part in parts if part)


@dataclass(frozen=True)
class View:
    """Named matrix `W` of a network, m outputs by n inputs.

    `W` shares memory with the stored tensor if strides allow. `out_axes` and `in_axes` are the axes
    that make up the m rows and n columns, outermost first: a 3x3 convolution has in_axes
    (("in", 64), ("tap0", 3), ("tap1", 3)). A part, such as one gate or head, names the whole matrix
    it was cut from in `part_of`.
    """

    name: str
    W: Num[Tensor, "m n"]
    kind: str
    parameter: str
    out_axes: Axes
    in_axes: Axes
    part_of: str | None = None

    @property
    def m(self) -> int:
        """Number of outputs."""
        return self.W.shape[0]

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.W.shape[1]


class _Steps(NamedTuple):
    """Axes of a reading by their positions in the tensor; many snapshots read by them."""

    elements: int
    sizes: list[int]
    windows: list[tuple[int, int, int]]
    fixed: list[tuple[int, int]]
    order: list[int]


@dataclass(frozen=True)
class Reading:
    """Way to read the matrix `name` out of the tensor `parameter`.

    The tensor is narrowed to `span` (axis, start, stop) if given. Its storage order is split into
    the named `axes`. Some are fixed by `index`, `outputs` become rows, `inputs` become columns.
    `windows` (axis, start, stop) narrow named axes, such as the first units of every head.

        Linear           axes (out, in)               outputs (out,)        inputs (in,)
        Embedding        axes (token, out)            outputs (out,)        inputs (token,)
        Conv2d           axes (out, in, tap0, tap1)   outputs (out,)        inputs (in, tap0, tap1)
        ConvTranspose2d  axes (in, out, tap0, tap1)   outputs (out,)        inputs (in, tap0, tap1)
        GPT-NeoX keys    axes (head, qkv, unit, in)   outputs (head, unit)  inputs (in,), qkv=1
    """

    name: str
    parameter: str
    kind: str
    axes: Axes
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    index: tuple[tuple[str, int], ...] = ()
    span: tuple[int, int, int] | None = None
    part_of: str | None = None
    windows: tuple[tuple[str, int, int], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        used = [*self.outputs, *self.inputs, *(name for name, _ in self.index)]
        assert sorted(names) == sorted(used), f"reading {self.name!r}: axes {names}, used {used}"

    def view(self, tensor: Tensor) -> View:
        """Read the matrix out of `tensor`."""
        if self.span is not None:
            axis, start, stop = self.span
            tensor = tensor.narrow(axis, start, stop - start)
        steps = self._steps
        if tensor.numel() != steps.elements:
            raise ValueError(
                f"matrix {self.name!r}: tensor {self.parameter!r} has shape {tuple(tensor.shape)}, "
                f"expected axes {dict(self.axes)}; read the model again after changing its shapes"
            )
        tensor = tensor.reshape(steps.sizes)
        for axis, start, length in steps.windows:
            tensor = tensor.narrow(axis, start, length)
        for axis, position in steps.fixed:
            tensor = tensor.select(axis, position)
        tensor = tensor.permute(steps.order)
        return View(
            name=self.name,
            W=tensor.reshape(self.m, self.n),
            kind=self.kind,
            parameter=self.parameter,
            out_axes=self.out_axes,
            in_axes=self.in_axes,
            part_of=self.part_of,
        )

    @cached_property
    def _steps(self) -> "_Steps":
        names = [name for name, _ in self.axes]
        windows = [(names.index(name), start, stop - start) for name, start, stop in self.windows]
        index = []
        for name, position in self.index:
            index.append((names.index(name), position))
            names.remove(name)
        order = [names.index(name) for name in (*self.outputs, *self.inputs)]
        sizes = [size for _, size in self.axes]
        return _Steps(math.prod(sizes), sizes, windows, index, order)

    def split(self, axis: str, into: Axes) -> "Reading":
        """Return the same matrix with one axis named as several, such as out as (head, unit)."""
        names = tuple(name for name, _ in into)
        return replace(
            self,
            axes=_with(self.axes, (axis, dict(self.axes)[axis]), into),
            outputs=_with(self.outputs, axis, names),
            inputs=_with(self.inputs, axis, names),
        )

    def at(self, axis: str, position: int, *, name: str, kind: str) -> "Reading":
        """Return the part at one position of an axis, such as one head or gate."""
        return replace(
            self,
            name=name,
            kind=kind,
            outputs=_with(self.outputs, axis, ()),
            inputs=_with(self.inputs, axis, ()),
            index=(*self.index, (axis, position)),
            part_of=self.part_of or self.name,
        )

    def narrow(self, axis: str, start: int, stop: int, *, name: str, kind: str) -> "Reading":
        """Return a range of a stored axis, such as the queries of a fused projection."""
        assert self.span is None, f"reading {self.name!r} is narrowed already"
        position = [stored for stored, _ in self.axes].index(axis)
        return replace(
            self,
            name=name,
            kind=kind,
            axes=_with(self.axes, (axis, dict(self.axes)[axis]), ((axis, stop - start),)),
            span=(position, start, stop),
            part_of=self.part_of or self.name,
        )

    def window(self, axis: str, start: int, stop: int, *, name: str, kind: str) -> "Reading":
        """Return a range of a named axis, such as the first units of every head."""
        return replace(
            self,
            name=name,
            kind=kind,
            windows=(*self.windows, (axis, start, stop)),
            part_of=self.part_of or self.name,
        )

    def transposed(self) -> "Reading":
        """Return the reading of the transposed matrix."""
        return replace(self, outputs=self.inputs, inputs=self.outputs)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each named axis, inside its window if it has one."""
        return dict(self.axes) | {axis: stop - start for axis, start, stop in self.windows}

    @cached_property
    def out_axes(self) -> Axes:
        """Axes that make up the rows, outermost first."""
        return tuple((name, self.sizes[name]) for name in self.outputs)

    @cached_property
    def in_axes(self) -> Axes:
        """Axes that make up the columns, outermost first."""
        return tuple((name, self.sizes[name]) for name in self.inputs)

    @cached_property
    def m(self) -> int:
        """Number of outputs."""
        return math.prod(size for _, size in self.out_axes)

    @cached_property
    def n(self) -> int:
        """Number of inputs."""
        return math.prod(size for _, size in self.in_axes)


def _with(items: tuple[T, ...], item: T, new: tuple[T, ...]) -> tuple[T, ...]:
    """Replace `item`, if present in `items`, by `new`."""
    if item not in items:
        return items
    position = items.index(item)
    return (*items[:position], *new, *items[position + 1 :])
