"""Pairs of matrices, and the parts of their singular vectors that live in the same space.

One matrix feeds the other; queries and keys meet instead. yunis2024, App. C.
"""

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
    """Choice of entries of a singular vector: reshaped to `shape`, then indexed by `index`.

    None keeps an axis, a number fixes it, (start, stop) keeps a range.

        Cut((512, 3, 3), (None, 1, 1))   centre tap of a 3x3 convolution's right vectors
        Cut((4, 256), (0, None))         input gate of an LSTM's left vectors
        Cut((96,), ((64, 96),))          last 32 of 96 concatenated features
    """

    shape: tuple[int, ...]
    index: tuple[Index, ...]

    def __call__(self, vectors: Num[Tensor, "d k"]) -> Num[Tensor, "cut k"]:
        """Return the chosen entries of vectors that are stored as columns."""
        columns = vectors.shape[-1]
        position = tuple(_as_position(index) for index in self.index)
        return vectors.reshape(*self.shape, columns)[position].reshape(self.size, columns)

    @property
    def size(self) -> int:
        """Number of entries chosen from a vector."""
        sizes = zip(self.shape, self.index, strict=True)
        return math.prod(_length(size, index) for size, index in sizes)


def _as_position(index: Index) -> int | slice:
    if isinstance(index, tuple):
        return slice(*index)
    return slice(None) if index is None else index


def _length(size: int, index: Index) -> int:
    if index is None:
        return size
    return index[1] - index[0] if isinstance(index, tuple) else 1


def block_cut(start: int, stop: int, total: int, *, taps: Sequence[int] = ()) -> Cut | None:
    """Return the cut to channels start .. stop of `total`, at the centre of the taps; None for all.

    Equal cuts are equal data: if the channels are one of several blocks of equal size, the cut
    names the block. The second half of 512 inputs is Cut((2, 256), (1, None)), not
    Cut((512,), ((256, 512),)).
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
    """Two views by name, and the sides and cuts on which their singular vectors meet.

    Side "out" means left vectors, "in" right vectors. Most pairs match outputs of the earlier with
    inputs of the later matrix; queries and keys match outputs with outputs. `kind` groups similar
    pairs: "linear", "conv", "qk", "vo", "recurrent" and so on. `label` distinguishes several cuts
    of the same two matrices.
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
        """Names of the two views with ">" between them, then the label in brackets."""
        return f"{self.earlier} > {self.later}" + (f" [{self.label}]" if self.label else "")
