"""Decomposition tasks, and what becomes of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rankscope.matrices.change import formed
from rankscope.spectra.solvers import Svd


@dataclass(frozen=True, eq=False)
class Task:
    """One matrix to decompose: factors (W,), or (left, right) of a product.

    before: factors of a matrix to subtract from it.
    rank: number of directions; None means all.
    """

    name: str
    factors: tuple[Tensor, ...]
    before: tuple[Tensor, ...] = ()
    rank: int | None = None

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the factors, of which the change of a product has twice the inner width."""
        shapes = [f.shape for f in self.factors]
        widen = 2 if self.before and len(shapes) == 2 else 1
        return tuple((rows, widen * columns) for rows, columns in shapes)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        first, last = self.shapes[0], self.shapes[-1]
        return first[0], last[0] if len(self.shapes) == 2 else last[1]

    @cached_property
    def k(self) -> int:
        """Number of singular values."""
        return min(size for shape in self.shapes for size in shape)

    @property
    def directions(self) -> int:
        """Number of directions to compute."""
        return self.k if self.rank is None else min(self.rank, self.k)

    @property
    def kind(self) -> tuple[object, ...]:
        """Key that is equal for tasks that can be stacked."""
        tensors, shapes = (*self.factors, *self.before), self.shapes
        if len(shapes) == 1 and not self.on_cpu:  # there a tall matrix is a wide one
            shapes = ((min(shapes[0]), max(shapes[0])),)
        dtypes = tuple(f.dtype for f in tensors)
        return shapes, dtypes, self.factors[0].device, self.directions

    @property
    def on_cpu(self) -> bool:
        return self.factors[0].device.type == "cpu"

    @cached_property
    def numbers(self) -> int:
        """Number of entries of the factors."""
        return sum(rows * columns for rows, columns in self.shapes)

    @property
    def size(self) -> int:
        """Number of bytes in float64, with work space."""
        return 8 * (self.numbers + 4 * self.k**2)

    @property
    def cost(self) -> int:
        """Rough number of operations, with the eigen-solver's weighted for its lower speed."""
        return self.k * self.numbers + 10 * self.k**3

    def at_host(self) -> "Task":
        """Return the task with its factors copied to the CPU."""
        factors, before = (tuple(f.cpu() for f in fs) for fs in (self.factors, self.before))
        return replace(self, factors=factors, before=before)


def grouped(tasks: Iterable[Task]) -> list[list[Task]]:
    """Return the tasks in lists of one kind, which can be stacked."""
    by_kind: dict[object, list[Task]] = {}
    for task in tasks:
        by_kind.setdefault(task.kind, []).append(task)
    return list(by_kind.values())


class Solved(NamedTuple):
    """Decomposition of a task.

    failed: it is NaN throughout.
    redone: a solver of the GPU failed its check, and the CPU took its place.
    """

    task: Task
    svd: Svd
    failed: bool = False
    redone: bool = False


def stacked(tasks: Sequence[Task]) -> tuple[Tensor, ...]:
    """Return the factors of tasks of one kind as stacks, of changes with `before` subtracted."""
    now = _stacks([task.factors for task in tasks])
    return formed(now, _stacks([task.before for task in tasks])) if tasks[0].before else now


def _stacks(factors: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    if len(factors) == 1:
        return tuple(f[None] for f in factors[0])
    return tuple(torch.stack(tensors) for tensors in zip(*factors, strict=True))


def zero_svd(task: Task) -> Svd:
    """Return the values of a matrix that is zero, without directions."""
    return _filled(task, 0.0, 0)


def nan_svd(task: Task) -> Svd:
    """Return NaN in the shapes of a decomposition."""
    return _filled(task, float("nan"), task.directions)


def _filled(task: Task, value: float, rank: int) -> Svd:
    m, n = task.shape
    device = task.factors[0].device
    U, S, Vh = (
        torch.full(shape, value, dtype=torch.float64, device=device)
        for shape in ((m, rank), (task.k,), (rank, n))
    )
    return Svd(U=U, S=S, Vh=Vh)
