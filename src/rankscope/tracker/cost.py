"""Cost of a tracker to the training it watches."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from torch import Tensor

from rankscope.tracker.budget import Budget

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Cost:
    """Cost of the snapshots that a tracker has taken so far.

    seconds: time that training lost, waiting for free places and copying.
    measuring_seconds: time that measuring took beside training. On the device that trains, it slows
        training meanwhile, which `seconds` does not count.
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


class LostTime:
    """Time that gauges take from training, which the budget is charged with too."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self._seconds = 0.0

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge the time inside."""
        began = time.perf_counter()
        try:
            with nullcontext() if self._budget is None else self._budget.copying():
                yield
        finally:
            self._seconds += time.perf_counter() - began

    def taken(self) -> float:
        """Return the seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Memory of these tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())
