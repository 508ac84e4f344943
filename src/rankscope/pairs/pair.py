"""Two matrices of which one feeds the other (or, for queries and keys, meets it), and which parts of their
singular vectors live in the same space. yunis2024, App. C."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Num
from torch import Tensor

Side = Literal["out", "in"]


@dataclass(frozen=True)
class Cut:
    """Which entries of a singular vector take part: the vector reshaped to `shape`, indexed by `index`.

    None keeps an axis, a number fixes it: Cut((512, 3, 3), (None, 1, 1)) is the centre tap of a 3x3
    convolution's right vectors, Cut((4, 256), (0, None)) the input gate of an LSTM's left vectors.
    """

    shape: tuple[int, ...]
    index: tuple[int | None, ...]

    def __call__(self, vectors: Num[Tensor, "d k"]) -> Num[Tensor, "cut k"]:
        position = tuple(slice(None) if i is None else i for i in self.index)
        return vectors.reshape(*self.shape, -1)[position].reshape(-1, vectors.shape[-1])


@dataclass(frozen=True)
class Pair:
    """`earlier` and `later` name views; their sides say whether left ("out") or right ("in") vectors meet.

    Most pairs match outputs of the earlier with inputs of the later matrix; queries and keys match outputs
    with outputs. `kind` groups pairs of one sort ("linear", "conv", "qk", "vo", "recurrent" ...), `label`
    tells apart several cuts of the same two matrices.
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
