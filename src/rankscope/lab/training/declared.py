"""What models of the laboratory say of themselves: their pairs, and whether fusing pays."""

from typing import Protocol, runtime_checkable

from torch import nn

from rankscope.pairs import Pair


@runtime_checkable
class Paired(Protocol):
    """Every model of the laboratory declares its pairs."""

    def alignment_pairs(self) -> tuple[Pair, ...]: ...


@runtime_checkable
class Tapped(Protocol):
    """A convolutional one also those of the taps beside the centre."""

    def tap_pairs(self) -> tuple[Pair, ...]: ...


@runtime_checkable
class Fusable(Protocol):
    """Of a large one most of a GPU's time goes into what is not matrix products: fusing it pays."""

    fusable: bool


def pairs_of(model: nn.Module) -> tuple[Pair, ...]:
    """The pairs a model declares, taps included."""
    assert isinstance(model, Paired), f"{type(model).__name__} declares no pairs"
    taps = model.tap_pairs() if isinstance(model, Tapped) else ()
    return (*model.alignment_pairs(), *taps)
