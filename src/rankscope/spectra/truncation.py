"""Leading singular values and directions of large matrices, with a bound on what is left out.

Stacks of large matrices on a GPU go to `leading_stacks`, other large matrices to `leading_single`,
one after another. Small matrices, and those that neither can solve, go to the full solver.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.matrices.change import formed, moves
from rankscope.matrices.reading import View
from rankscope.spectra.decomposition import Matrix, factors_of, now_and_before, svd
from rankscope.spectra.leading_part import Leading, constant
from rankscope.spectra.leading_single import by_krylov
from rankscope.spectra.leading_stacks import solve
from rankscope.spectra.operator import Operator, of_tensor
from rankscope.spectra.task import Task
from rankscope.spectra.tasks import Report, say_nothing, warn_of_failure
from rankscope.spectra.workers import spread

# Up to so many values, and so many more for each wanted direction, the full solver takes less time.
SMALL, PER_DIRECTION = 256, 4
# Entries beyond these sizes are scaled, so that squares of values stay within the format.
SAFE = {torch.float32: 1e6, torch.float64: 1e100}
# Error of the full solvers, in units of the largest value (`solvers`).
FULL_ERROR = 1e-11


def leading(x: Matrix | Operator, rank: int, *, tolerance: float = 1e-6) -> Leading:
    """Return the `rank` leading singular values and directions, or all that the matrix has.

    The Frobenius norm of the rest exceeds the least possible one by the share `tolerance` at most,
    as far as residuals tell. Directions are as good as that needs. Factors of a Product are never
    multiplied out. Matrices may have leading axes. Non-finite entries give NaN, with a warning.
    """
    _check(rank, tolerance)
    name = x.name if isinstance(x, View) else "x"
    if isinstance(x, Operator):
        results, shape = [_of_operator(x, rank, tolerance)], torch.Size()
    else:
        factors = factors_of(name, x)
        shape = factors[0].shape[:-2]
        stacks = zip(*(f.flatten(0, -3) if shape else f[None] for f in factors), strict=True)
        results = [_of_factors(parts, rank, tolerance) for parts in stacks]
    if any(not result.frobenius.isfinite() for result in results):
        warn_of_failure([name])
    columns = {
        f.name: torch.stack([getattr(result, f.name) for result in results])
        for f in fields(Leading)
    }
    return Leading(**{name: x.reshape((*shape, *x.shape[1:])) for name, x in columns.items()})


def decompose_leading(
    matrices: Mapping[str, Matrix],
    rank: int,
    *,
    ranks: Mapping[str, int] = MappingProxyType({}),
    tolerance: float = 1e-6,
    threads: int | None = None,
    on_failure: Report = warn_of_failure,
    on_redone: Report = say_nothing,
) -> dict[str, Leading]:
    """Return the leading part of each matrix, which has two axes, by name.

    ranks: number of directions of single matrices, where it is above `rank`.
    threads, on_failure, on_redone: as in `decompose`.
    """
    _check(rank, tolerance)
    tasks = {}
    for name, x in matrices.items():
        now, before = now_and_before(name, x)
        tasks[name] = Task(name, now, before, rank=max(rank, ranks.get(name, 0)))
    on_gpu = [task for task in tasks.values() if not task.on_cpu]
    on_cpu = [task for task in tasks.values() if task.on_cpu]

    def alone(task: Task) -> Leading:
        return _of_task(task, tolerance)

    def cost(task: Task) -> float:
        return float(task.numbers)

    parts, wrong = _on_gpu(on_gpu, tolerance)
    solved = spread(alone, on_cpu, cost=cost, threads=threads)
    parts |= {task.name: part for task, part in zip(on_cpu, solved, strict=True)}
    if wrong:
        on_redone(wrong)
    if failed := [name for name in matrices if not parts[name].frobenius.isfinite()]:
        on_failure(failed)
    return parts


def _on_gpu(tasks: Sequence[Task], tolerance: float) -> tuple[dict[str, Leading], list[str]]:
    """Return leading parts by name, and the names of those that the CPU decomposed instead."""
    stacked = solve([task for task in tasks if not is_small(task.k, task.directions)], tolerance)
    parts = {task.name: part for task, part, _ in stacked if part is not None}
    wrong = {task.name for task, _, is_wrong in stacked if is_wrong}
    for task in tasks:
        if task.name not in parts and task.name not in wrong:
            try:
                parts[task.name] = _of_task(task, tolerance)
            except torch.OutOfMemoryError:
                wrong.add(task.name)
    for task in tasks:
        if task.name in wrong:
            part = _of_task(task.at_host(), tolerance)
            parts[task.name] = part.to(task.factors[0].device)
    return parts, sorted(wrong)


def _of_task(task: Task, tolerance: float) -> Leading:
    factors = task.factors
    if task.before:
        factors = formed(task.factors, task.before)
        if not any(part.any() for part in moves(factors)):
            return constant(task.shape, task.directions, 0.0, factors[0].device)
    assert task.rank is not None
    return _of_factors(factors, task.rank, tolerance)


def is_small(k: int, rank: int) -> bool:
    """Tell whether all k values take less time than the leading `rank` ones."""
    return k <= SMALL + PER_DIRECTION * rank


def _check(rank: int, tolerance: float) -> None:
    if rank < 1:
        raise ValueError(f"rank: expected a number of directions, 1 or more, got {rank}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance: expected a number between 0 and 1, got {tolerance}")


def _of_factors(factors: tuple[Tensor, ...], rank: int, tolerance: float) -> Leading:
    if not all(math.isfinite(_largest(f)) for f in factors):
        right = factors[1] if len(factors) == 2 else factors[0].mT
        rank = min(rank, *factors[0].shape, *right.shape)
        return constant((len(factors[0]), len(right)), rank, math.nan, factors[0].device)
    if len(factors) == 2:
        return _of_product(*factors, rank, tolerance)
    W = factors[0]
    largest = _largest(W)
    safe = SAFE[torch.float64 if W.dtype == torch.float64 else torch.float32]
    if largest and not 1 / safe < largest < safe:
        scale = 2.0 ** math.floor(math.log2(largest))
        scaled = (W.double() / scale).to(torch.promote_types(W.dtype, torch.float32))
        return _scaled(_of_operator(of_tensor(scaled), rank, tolerance), scale)
    return _of_operator(of_tensor(W), rank, tolerance)


def _largest(W: Tensor) -> float:
    """Size of the largest entry; NaN or infinite if any is."""
    if not W.numel():
        return 0.0
    low, high = W.aminmax()
    return float(torch.maximum(low.abs(), high.abs()))


def _of_product(left: Tensor, right: Tensor, rank: int, tolerance: float) -> Leading:
    """Decompose left @ right.mT by a QR of both factors and the product of their small parts."""
    if left.shape[1] >= min(len(left), len(right)):
        return _of_factors((left.double() @ right.double().mT,), rank, tolerance)
    (Q, R), (P, T) = torch.linalg.qr(left.double()), torch.linalg.qr(right.double())
    core = _of_factors((R @ T.mT,), rank, tolerance)
    return replace(core, U=Q @ core.U, Vh=core.Vh @ P.mT)


def _of_operator(W: Operator, rank: int, tolerance: float) -> Leading:
    if W.shape[0] < W.shape[1]:
        return _of_operator(W.mT, rank, tolerance).mT
    n = W.shape[1]
    rank = min(rank, n)
    if not is_small(n, rank):
        energy = W.energy()
        if not math.isfinite(energy):
            return constant(W.shape, rank, math.nan, W.device)
        if energy == 0:
            return constant(W.shape, rank, 0.0, W.device)
        try:
            if (result := by_krylov(W, rank, energy, tolerance)) is not None:
                return result
        except LinAlgError:
            pass
    return _by_full_solver(W, rank)


def _by_full_solver(W: Operator, rank: int) -> Leading:
    dense = W.W if W.W is not None else torch.cat([panel for _, panel in W.panels()], dim=1)
    full = svd(dense, rank)
    U, S, V = full.U, full.S[:rank], full.Vh.mT
    precise = of_tensor(dense).in_float64()
    residuals = (precise.matmul(V) - U * S).norm(dim=0)
    residuals = residuals.hypot((precise.transposed_matmul(U) - V * S).norm(dim=0))
    rest = full.S[rank:]
    error = FULL_ERROR * full.S[:1].sum()
    return Leading(
        U=U,
        S=S,
        Vh=full.Vh,
        frobenius=full.S.norm(),
        residuals=residuals,
        remainder=rest[0] + error if len(rest) else error,
        remainder_norm=rest.norm(),
        excess=error * 0,
        columns=torch.zeros((), dtype=torch.int64, device=S.device),
    )


def _scaled(part: Leading, scale: float) -> Leading:
    sizes = ("S", "frobenius", "residuals", "remainder", "remainder_norm")
    return replace(part, **{name: getattr(part, name) * scale for name in sizes})
