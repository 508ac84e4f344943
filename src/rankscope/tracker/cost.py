"""Cost of a tracker to the training it watches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Cost:
    """Cost of the snapshots that a tracker has taken so far.

    seconds: time that training lost, waiting for free places and copying.
    measuring_seconds: time that measuring took beside training. Where the CPU trains, it takes
        cores from training meanwhile.
    bytes: memory that copies of weights and the reference hold.
    """

    snapshots: int = 0
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    bytes: int = 0

    def with_snapshot(self, *, lost: float, measuring: float, bytes: int) -> "Cost":
        """Return the cost with one more snapshot; memory is the largest so far."""
        return replace(
            self,
            snapshots=self.snapshots + 1,
            seconds=self.seconds + lost,
            measuring_seconds=self.measuring_seconds + measuring,
            bytes=max(self.bytes, bytes),
        )

    def __str__(self) -> str:
        return (
            f"{self.snapshots} snapshots: training lost {self.seconds:.2g} s; measuring took "
            f"{self.measuring_seconds:.2g} s beside it and holds {self.bytes / MEBIBYTE:.3g} MiB"
        )


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Memory of these tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())
