"""Two matrices of which one feeds the other (or, for queries and keys, meets it), and which parts
of their singular vectors live in the same space. yunis2024, App. C."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Num
from torch import Tensor

Side = Literal["out", "in"]
Index = int | tuple[int, int] | None


@dataclass(frozen=True)
class Cut:
    """Which entries of a singular vector take part: reshaped to `shape`, then indexed by `index`.

    None keeps an axis, a number fixes it, (start, stop) keeps a range: Cut((512, 3, 3), (None, 1,
    1)) is the centre tap of a 3x3 convolution's right vectors, Cut((4, 256), (0, None)) the input
    gate of an LSTM's left vectors, Cut((96,), ((64, 96),)) the last 32 of 96 concatenated features.
    """

    shape: tuple[int, ...]
    index: tuple[Index, ...]

    def __call__(self, vectors: Num[Tensor, "d k"]) -> Num[Tensor, "cut k"]:
        position = tuple(slice(*i) if isinstance(i, tuple) else _kept(i) for i in self.index)
        return vectors.reshape(*self.shape, vectors.shape[-1])[position].reshape(
            self.size, vectors.shape[-1]
        )

    @property
    def size(self) -> int:
        """How many entries of a vector are left."""
        sizes = zip(self.shape, self.index, strict=True)
        return math.prod(_length(size, index) for size, index in sizes)


def _kept(index: int | None) -> int | slice:
    return slice(None) if index is None else index


def _length(size: int, index: Index) -> int:
    if index is None:
        return size
    return index[1] - index[0] if isinstance(index, tuple) else 1


def block_cut(start: int, stop: int, total: int, *, taps: Sequence[int] = ()) -> Cut | None:
    """The cut to channels start .. stop of `total`, at the centre of the taps; None for all.

    Blocks of equal size are written as such, so that the same cut is the same data however it was
    found: the second half of 512 inputs is Cut((2, 256), (1, None)), not Cut((512,), ((256,
    512),)).
    """
    if all(size == 1 for size in taps):
        taps = ()
    centre = tuple(size // 2 for size in taps)
    width = stop - start
    if width == total:
        return Cut((total, *taps), (None, *centre)) if taps else None
    if start % width == 0 and total % width == 0:
        return Cut((total // width, width, *taps), (start // width, None, *centre))
    return Cut((total, *taps), ((start, stop), *centre))


@dataclass(frozen=True)
class Pair:
    """Two views by name; their sides say whether left ("out") or right ("in") vectors meet.

    Most pairs match outputs of the earlier with inputs of the later matrix; queries and keys match
    outputs with outputs. `kind` groups pairs of one sort ("linear", "conv", "qk", "vo", "recurrent"
    ...), `label` tells apart several cuts of the same two matrices.
    """

    earlier: str
    later: str
    kind: str = "linear"
    earlier_side: Side = "out"
    later_side: Side = "in"
    earlier_cut: Cut | None = None
    later_cut: Cut | None = None
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.earlier} > {self.later}" + (f" [{self.label}]" if self.label else "")
