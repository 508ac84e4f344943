"""Scans on a Ray cluster: portions of tensors, of several checkpoints at once, one core each.

All nodes must see the checkpoints under the same paths. A portion is measured as it is here, so the
result is the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import ray
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.matrices import Views, views
from rankscope.ray_connection import connected
from rankscope.scanning.adapters import matrices_of, open_scanned
from rankscope.scanning.measuring import Base, Measured, measure
from rankscope.scanning.portions import read_portion
from rankscope.scanning.tasks import Task


class Cluster:
    """Workers of a Ray cluster that measure portions."""

    def __init__(self) -> None:
        self._task = ray.remote(num_cpus=1, max_retries=3)(measure_there)

    def submit(self, task: Task) -> Any:
        """Send a portion to a worker; `result` waits for it."""
        options = replace(task.options, threads=1)
        return self._task.remote(replace(task, options=options))

    def result(self, reference: Any) -> Measured:
        """Return what the worker has measured."""
        measured: Measured = ray.get(reference)
        return measured

    @property
    def width(self) -> int:
        """Number of portions that may be under way."""
        return 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Connect to the cluster at RAY_ADDRESS, or start one on this machine, while the body runs."""
    with connected():
        yield Cluster()


def measure_there(task: Task) -> Measured:
    """Measure one portion in a worker, which keeps the last headers it has read."""
    torch.set_num_threads(1)
    matrices = _opened(task.path, task.include, task.exclude)
    base = None if task.base is None else _base(task.base)
    return measure(read_portion(matrices, task.names), task.options, base)


@lru_cache(maxsize=2)
def _opened(path: str, include: tuple[str, ...] | None, exclude: tuple[str, ...] | None) -> Views:
    return matrices_of(open_scanned(path), include=include, exclude=exclude)


@lru_cache(maxsize=1)
def _base(path: str) -> Base:
    return Base(views(open_checkpoint(path)))
