"""Stacks of small matrices on the CPU, tried with another solver on failure."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Num
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.matrices.change import moves
from rankscope.spectra.solvers import Solver, Svd, by_gram, direct, of_product
from rankscope.spectra.task import Solved, Task, nan_svd, stacked, zero_svd


def solve_stack(tasks: Sequence[Task]) -> list[Solved]:
    """Solve tasks of one kind."""
    factors = stacked(tasks)
    if tasks[0].before and tasks[0].directions == 0:
        still = _unchanged(factors)
        if any(still):
            zeros = [
                Solved(task, zero_svd(task))
                for task, same in zip(tasks, still, strict=True)
                if same
            ]
            moved = [i for i, same in enumerate(still) if not same]
            rest = [tasks[i] for i in moved]
            return zeros + (_solve(rest, [f[moved] for f in factors]) if rest else [])
    return _solve(tasks, factors)


def _solve(tasks: Sequence[Task], factors: Sequence[Tensor]) -> list[Solved]:
    finite = torch.stack([_is_finite(f) for f in factors]).all(0)
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


def _is_finite(x: Num[Tensor, "b m n"]) -> Bool[Tensor, " b"]:
    """Tell which matrices of a stack are finite.

    A sum is finite only if its terms are. It reads them once, and much faster than isfinite().
    """
    finite = x.sum((1, 2)).isfinite()
    return finite if finite.all() else x.isfinite().all(2).all(1)


def _is_zero(x: Num[Tensor, "b m n"]) -> Bool[Tensor, " b"]:
    """Tell which matrices of a stack are zero."""
    zero = x.sum((1, 2)) == 0
    return zero & ~x.any(2).any(1) if zero.any() else zero


def _unchanged(factors: Sequence[Tensor]) -> list[bool]:
    """Tell which changes of a stack are zero."""
    parts = moves(factors) if len(factors) == 2 else factors
    same: list[bool] = torch.stack([_is_zero(part) for part in parts]).all(0).tolist()
    return same


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
