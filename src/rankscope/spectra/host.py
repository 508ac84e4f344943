"""Stacks of small matrices on the CPU, tried with another solver on failure."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.matrices.change import moves
from rankscope.spectra.solvers import Solver, Svd, by_gram, direct, of_product
from rankscope.spectra.task import Solved, Task, nan_svd, stacked, zero_svd


def solve_stack(tasks: Sequence[Task]) -> list[Solved]:
    """Solve tasks of one kind."""
    factors = stacked(tasks)
    ranges = [_range(f) for f in factors]
    if tasks[0].before and tasks[0].directions == 0:
        still = _unchanged(factors, ranges)
        if any(still):
            zeros = [
                Solved(task, zero_svd(task))
                for task, same in zip(tasks, still, strict=True)
                if same
            ]
            moved = [i for i, same in enumerate(still) if not same]
            rest = [tasks[i] for i in moved]
            return zeros + (_solve(rest, *_chosen(moved, factors, ranges)) if rest else [])
    return _solve(tasks, factors, ranges)


def _solve(
    tasks: Sequence[Task], factors: Sequence[Tensor], ranges: Sequence[Tensor]
) -> list[Solved]:
    finite = torch.stack([r.isfinite().all(0) for r in ranges]).all(0)
    if not finite.all():
        # Solvers may hang or raise on NaN; zeros keep the stack whole.
        factors = [torch.where(finite[:, None, None], f, 0.0) for f in factors]
    try:
        result = _apply(_solver(factors), factors, tasks)
    except LinAlgError:
        if len(tasks) > 1:
            return [solved for task in tasks for solved in solve_stack([task])]
        result = _solve_otherwise(factors, tasks)
    failed = ~(finite & result.S.isfinite().all(1))
    return [
        Solved(task, nan_svd(task) if bad else _copy(result, i), bad)
        for i, (task, bad) in enumerate(zip(tasks, failed.tolist(), strict=True))
    ]


def _range(x: Tensor) -> Tensor:
    """Largest and smallest entry of each matrix of a stack; NaN if one is NaN.

    They tell several times faster than isfinite().all() whether a matrix is finite.
    """
    if x.numel() == 0:
        return x.new_zeros(2, len(x))
    return torch.stack([x.amax((1, 2)), x.amin((1, 2))])


def _unchanged(factors: Sequence[Tensor], ranges: Sequence[Tensor]) -> list[bool]:
    """Tell which changes of a stack are zero."""
    if len(factors) == 2:
        ranges = [_range(part) for part in moves(factors)]
    same: list[bool] = torch.stack([r.eq(0).all(0) for r in ranges]).all(0).tolist()
    return same


def _chosen(
    positions: list[int], factors: Sequence[Tensor], ranges: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    return [f[positions] for f in factors], [r[:, positions] for r in ranges]


def _copy(result: Svd, i: int) -> Svd:
    """Copy one result out of a stack, so that the stack can be freed."""
    return Svd(*(x[i].clone() for x in (result.U, result.S, result.Vh)))


def _solver(factors: Sequence[Tensor]) -> Solver:
    return direct if len(factors) == 1 and factors[0].dtype == torch.float64 else by_gram


def _apply(solver: Solver, factors: Sequence[Tensor], tasks: Sequence[Task]) -> Svd:
    if any(f.numel() == 0 for f in factors):
        return _unsolved(tasks)  # an empty matrix has no values
    rank = tasks[0].directions
    if len(factors) == 1:
        return solver(factors[0], rank)
    left, right = factors
    return of_product(left, right, rank, solver)


def _solve_otherwise(factors: Sequence[Tensor], tasks: Sequence[Task]) -> Svd:
    """Solve by the solver that was not tried."""
    solver = by_gram if _solver(factors) is direct else direct
    try:
        return _apply(solver, factors, tasks)
    except LinAlgError:
        return _unsolved(tasks)


def _unsolved(tasks: Sequence[Task]) -> Svd:
    nan = nan_svd(tasks[0])
    return Svd(*(x.expand(len(tasks), *x.shape) for x in (nan.U, nan.S, nan.Vh)))
