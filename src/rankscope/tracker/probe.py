"""What else to measure at a snapshot, beside training: a loss, an accuracy, a truncated network."""

from collections.abc import Mapping
from typing import Protocol, SupportsFloat, runtime_checkable

from torch import Tensor


@runtime_checkable
class Probe(Protocol):
    """Numbers of the weights at a snapshot, stored with it as scalars.

    Called on the tracker's own thread, without gradients, with a copy of every parameter and buffer
    by name, and with the leading directions it asks for, so that no matrix is decomposed again:
    columns of U for a matrix with m <= n, else of V. It must neither change nor keep these tensors.
    """

    @property
    def directions(self) -> Mapping[str, int]:
        """How many leading directions it needs, by matrix; {} for none."""

    def __call__(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> Mapping[str, SupportsFloat]: ...
