"""Probes measure more at a snapshot: a loss, an accuracy, a truncated network."""

from collections.abc import Mapping
from typing import Protocol, SupportsFloat, runtime_checkable

from torch import Tensor


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
