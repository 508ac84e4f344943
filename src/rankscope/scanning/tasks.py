"""Tasks of a scan: one portion of one checkpoint, measured here or on a cluster."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rankscope.scanning.measuring import Measured, Options


@dataclass(frozen=True)
class Task:
    """Names of the tensors of one portion, and all that a worker needs to measure it."""

    path: str
    names: tuple[str, ...]
    options: Options
    base: str | None
    include: tuple[str, ...] | None
    exclude: tuple[str, ...] | None


@runtime_checkable
class Workers(Protocol):
    """Workers that measure portions, several at a time."""

    @property
    def width(self) -> int:
        """Number of portions that may be under way."""

    def submit(self, task: Task) -> Any:
        """Send a portion to a worker."""

    def result(self, reference: Any) -> Measured:
        """Wait for what a worker has measured."""
