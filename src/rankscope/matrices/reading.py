"""A matrix as it is read out of a stored tensor.

A `Reading` is data: which tensor, how its axes split, which of them are outputs and which inputs. Model,
state dict and staged copy are all read by the same readings, so they agree by construction, and a run can
keep its readings (the manifest) as JSON.
"""

import math
from dataclasses import dataclass

from jaxtyping import Num
from torch import Tensor

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class View:
    """A named matrix of a network: `W` with m outputs and n inputs, sharing memory where strides allow.

    `out_axes` and `in_axes` say what the m rows and n columns are made of, outermost first: a 3x3
    convolution has in_axes (("in", 64), ("tap0", 3), ("tap1", 3)). A part (one gate, one head) names the
    whole matrix it was cut from in `part_of`.
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
        return self.W.shape[0]

    @property
    def n(self) -> int:
        return self.W.shape[1]


@dataclass(frozen=True)
class Reading:
    """How the matrix `name` is read out of the tensor `parameter`.

    The tensor is narrowed to `span` (axis, start, stop) if given, its storage order split into the named
    `axes`, some of them fixed by `index`; the axes named in `outputs` become rows, those in `inputs` columns.

        Linear          axes (out, in)                      outputs (out,)       inputs (in,)
        Embedding       axes (token, out)                   outputs (out,)       inputs (token,)
        Conv2d          axes (out, in, tap0, tap1)          outputs (out,)       inputs (in, tap0, tap1)
        ConvTranspose2d axes (in, out, tap0, tap1)          outputs (out,)       inputs (in, tap0, tap1)
        Q of packed QKV axes (qkv, head, unit, in), qkv=0   outputs (head, unit) inputs (in,)
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

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        used = [*self.outputs, *self.inputs, *(name for name, _ in self.index)]
        assert sorted(names) == sorted(used), f"reading {self.name!r}: axes {names}, used {used}"

    def view(self, tensor: Tensor) -> View:
        """The matrix, read out of `tensor`."""
        if self.span is not None:
            axis, start, stop = self.span
            tensor = tensor.narrow(axis, start, stop - start)
        sizes = [size for _, size in self.axes]
        if tensor.numel() != math.prod(sizes):
            raise ValueError(
                f"matrix {self.name!r}: tensor {self.parameter!r} has shape {tuple(tensor.shape)}, "
                f"expected axes {dict(self.axes)}; read the model again after changing its shapes"
            )
        tensor = tensor.reshape(sizes)
        kept = [name for name, _ in self.axes]
        for name, position in self.index:
            tensor = tensor.select(kept.index(name), position)
            kept.remove(name)
        tensor = tensor.permute([kept.index(name) for name in (*self.outputs, *self.inputs)])
        return View(
            name=self.name,
            W=tensor.reshape(self.m, self.n),
            kind=self.kind,
            parameter=self.parameter,
            out_axes=self.out_axes,
            in_axes=self.in_axes,
            part_of=self.part_of,
        )

    @property
    def out_axes(self) -> Axes:
        return tuple((name, dict(self.axes)[name]) for name in self.outputs)

    @property
    def in_axes(self) -> Axes:
        return tuple((name, dict(self.axes)[name]) for name in self.inputs)

    @property
    def m(self) -> int:
        return math.prod(size for _, size in self.out_axes)

    @property
    def n(self) -> int:
        return math.prod(size for _, size in self.in_axes)
