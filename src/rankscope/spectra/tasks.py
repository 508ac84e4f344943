"""Decomposition tasks: stacked by shape, solved, and tried with another solver on failure."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.spectra.solvers import Solver, Svd, by_gram, direct, of_product
from rankscope.spectra.workers import spread

# Largest stacks of equal shapes, in float64 and with work space. On the CPU a stack saves small
# matrices the overhead of a call each; on a GPU it uses all cores without filling the memory.
CPU_STACK_BYTES = 2**20
GPU_STACK_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class Task:
    """One matrix to decompose: factors (W,), or (left, right) of a product; rank None means all."""

    name: str
    factors: tuple[Tensor, ...]
    rank: int | None

    @property
    def k(self) -> int:
        """Number of singular values."""
        return min(size for factor in self.factors for size in factor.shape)

    @property
    def directions(self) -> int:
        """Number of directions to compute."""
        return self.k if self.rank is None else min(self.rank, self.k)

    @property
    def kind(self) -> str:
        """Key that is equal for tasks that can be stacked."""
        tensors = [(tuple(f.shape), f.dtype, f.device) for f in self.factors]
        return repr((tensors, self.directions))

    @property
    def on_cpu(self) -> bool:
        return self.factors[0].device.type == "cpu"

    @property
    def size(self) -> int:
        """Number of bytes in float64, with work space."""
        return 8 * (sum(f.numel() for f in self.factors) + 4 * self.k**2)

    @property
    def cost(self) -> int:
        """Rough number of operations, with the eigen-solver's weighted for its lower speed."""
        return self.k * sum(f.numel() for f in self.factors) + 10 * self.k**3


def solve_all(
    tasks: Sequence[Task], *, threads: int | None, on_failure: Callable[[Sequence[str]], None]
) -> dict[Task, Svd]:
    """Decompose each task; call `on_failure` with the names of all that failed."""
    stacks = list(_stacks(tasks))
    solved = [_solve(stack) for stack in stacks if not stack[0].on_cpu]
    solved += spread(
        _solve,
        [stack for stack in stacks if stack[0].on_cpu],
        cost=lambda stack: sum(task.cost for task in stack),
        threads=threads,
    )
    results = {task: result for part in solved for task, result, _ in part}
    failed = {task for part in solved for task, _, bad in part if bad}
    if failed:
        on_failure([task.name for task in tasks if task in failed])
    return results


def warn_of_failure(names: Sequence[str]) -> None:
    """Give one RuntimeWarning that names the first eight matrices."""
    first_names = ", ".join(repr(name) for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    warnings.warn(
        f"singular values are NaN for {first_names}{more}: not finite, or no solver converged; "
        "look for NaN, Inf or overflow in the weights",
        RuntimeWarning,
        stacklevel=4,
    )


def _stacks(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Yield tasks of one kind, in lists that fit their device."""
    for _, group in groupby(sorted(tasks, key=lambda t: t.kind), key=lambda t: t.kind):
        same_kind = list(group)
        limit = CPU_STACK_BYTES if same_kind[0].on_cpu else GPU_STACK_BYTES
        length = max(1, limit // max(1, same_kind[0].size))
        yield from (same_kind[i : i + length] for i in range(0, len(same_kind), length))


def _solve(stack: Sequence[Task]) -> list[tuple[Task, Svd, bool]]:
    """Solve tasks of one kind; return each task, its decomposition and whether it failed."""
    factors = [
        tensors[0][None] if len(stack) == 1 else torch.stack(tensors)
        for tensors in zip(*(task.factors for task in stack), strict=True)
    ]
    finite = torch.stack([_is_finite(f) for f in factors]).all(0)
    if not finite.all():
        # Solvers may hang or raise on NaN; zeros keep the stack whole.
        factors = [torch.where(finite[:, None, None], f, 0.0) for f in factors]
    try:
        result = _apply(_solver(factors), factors, stack[0].directions)
    except LinAlgError:
        if len(stack) > 1:
            return [solved for task in stack for solved in _solve([task])]
        result = _solve_otherwise(factors, stack[0].directions)
    failed = ~(finite & result.S.isfinite().all(1))
    return [
        (task, _nan(result, i) if bad else _copy(result, i), bad)
        for i, (task, bad) in enumerate(zip(stack, failed.tolist(), strict=True))
    ]


def _is_finite(x: Tensor) -> Tensor:
    """Tell which matrices of a stack are finite, several times faster than isfinite().all()."""
    if x.numel() == 0:
        return torch.ones(len(x), dtype=torch.bool, device=x.device)
    return x.amax((1, 2)).isfinite() & x.amin((1, 2)).isfinite()


def _copy(result: Svd, i: int) -> Svd:
    """Copy one result out of a stack, so that the stack can be freed."""
    return Svd(*(x[i].clone() for x in (result.U, result.S, result.Vh)))


def _nan(result: Svd, i: int) -> Svd:
    return Svd(*(torch.full_like(x[i], math.nan) for x in (result.U, result.S, result.Vh)))


def _solver(factors: Sequence[Tensor]) -> Solver:
    W, on_cpu = factors[0], factors[0].device.type == "cpu"
    return direct if len(factors) == 1 and W.dtype == torch.float64 and on_cpu else by_gram


def _apply(solver: Solver, factors: Sequence[Tensor], rank: int) -> Svd:
    if any(f.numel() == 0 for f in factors):
        return _unsolved(factors, rank)  # an empty matrix has no values
    if len(factors) == 1:
        return solver(factors[0], rank)
    left, right = factors
    return of_product(left, right, rank, solver)


def _solve_otherwise(factors: Sequence[Tensor], rank: int) -> Svd:
    """Solve on the CPU, by the solver that was not tried."""
    solver, device = by_gram if _solver(factors) is direct else direct, factors[0].device
    try:
        result = _apply(solver, [f.cpu() for f in factors], rank)
    except LinAlgError:
        return _unsolved(factors, rank)
    return Svd(*(x.to(device) for x in (result.U, result.S, result.Vh)))


def _unsolved(factors: Sequence[Tensor], rank: int) -> Svd:
    """Return NaN in the shapes of a decomposition."""
    left, right = factors[0], factors[-1] if len(factors) == 2 else factors[0].mT
    batch, m, n = len(left), left.shape[1], right.shape[1]
    k = min(m, n, left.shape[2], right.shape[2])
    nan = torch.full((), math.nan, dtype=torch.float64, device=left.device)
    return Svd(U=nan.expand(batch, m, rank), S=nan.expand(batch, k), Vh=nan.expand(batch, rank, n))
