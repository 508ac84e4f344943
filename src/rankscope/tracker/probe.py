"""Probes measure more at a snapshot: a loss, an accuracy, a truncated network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, SupportsFloat, runtime_checkable

from torch import Tensor

Tensors = Mapping[str, Tensor]
ProbeFunction = Callable[[Tensors, Tensors], Mapping[str, SupportsFloat]]


@runtime_checkable
class Probe(Protocol):
    """A function of the weights at a snapshot; the numbers it returns are stored with it.

    The tracker calls it on its own thread, without gradients. It passes a copy of every parameter
    and buffer by name, and the leading directions that the probe asks for: columns of U for a
    matrix with m <= n, else of V. The probe must neither change nor keep these tensors.
    """

    @property
    def directions(self) -> Mapping[str, int]:
        """Number of leading directions it needs of each matrix; {} for none."""

    def __call__(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> Mapping[str, SupportsFloat]: ...


@dataclass(frozen=True)
class FunctionProbe:
    """A probe of a plain function, which asks for no directions."""

    function: ProbeFunction
    directions: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, tensors: Tensors, directions: Tensors) -> Mapping[str, SupportsFloat]:
        return self.function(tensors, directions)


def as_probe(given: Probe | ProbeFunction | None) -> Probe | None:
    """Return the probe that a user gave; a plain function becomes one."""
    if given is None or isinstance(given, Probe):
        return given
    return FunctionProbe(given)
