"""Decompositions on a GPU: hardly a launch for each matrix, hardly a moment when the host waits.

The host reads twice for each stack: which matrices are finite and have changed, then which are
refined or fail a check. A matrix that fails is decomposed on the CPU.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.spectra import host
from rankscope.spectra.cusolver import engine_on
from rankscope.spectra.engine import Engine
from rankscope.spectra.guards import wrong_values, wrong_vectors
from rankscope.spectra.solvers import VALUES_FLOOR, VECTORS_FLOOR, Svd, eigen, refine, roots
from rankscope.spectra.stacks import Stack, gathered, is_tall, rows
from rankscope.spectra.task import Solved, Task, nan_svd, zero_svd

# Memory of a stack. With the portions of a snapshot it stays below 2 GiB beside the weights.
STACK_BYTES = 7 * 2**28 - 2**26


def solve_stack(tasks: Sequence[Task], engine: Engine | None = None) -> list[Solved]:
    """Solve tasks of one kind; halves of a stack on which the solver stops are tried again."""
    if tasks[0].k == 0:
        return [Solved(task, nan_svd(task)) for task in tasks]
    try:
        return _solve(tasks, engine or engine_on(tasks[0].factors[0].device))
    except (LinAlgError, torch.OutOfMemoryError):
        pass  # and let go of the memory that the exception holds
    if len(tasks) == 1:
        return [_redone(tasks[0])]
    half = len(tasks) // 2
    return [*solve_stack(tasks[:half], engine), *solve_stack(tasks[half:], engine)]


def _solve(tasks: Sequence[Task], engine: Engine) -> list[Solved]:
    rank = tasks[0].directions
    stack = gathered(tasks)
    states = stack.states(zero_known=rank == 0)
    chosen = [i for i, state in enumerate(states) if state == "solve"]
    results = [
        Solved(task, zero_svd(task)) if state == "zero" else Solved(task, nan_svd(task), True)
        for task, state in zip(tasks, states, strict=True)
        if state != "solve"
    ]
    if chosen:
        svd, wrong = _decomposed(stack.choose(chosen), rank, engine)
        for i, position in enumerate(chosen):
            task = tasks[position]
            part = Svd(svd.U[i], svd.S[i], svd.Vh[i])
            solved = Solved(task, part.mT if is_tall(task) else part)
            results.append(_redone(task) if wrong[i] else solved)
    return results


def _redone(task: Task) -> Solved:
    """Solve a task on the CPU and bring the result back."""
    factors, before = (tuple(f.cpu() for f in fs) for fs in (task.factors, task.before))
    (solved,) = host.solve_stack([replace(task, factors=factors, before=before)])
    device = task.factors[0].device
    svd = Svd(*(x.to(device) for x in (solved.svd.U, solved.svd.S, solved.svd.Vh)))
    return Solved(task, svd, solved.failed, redone=True)


def _decomposed(stack: Stack, rank: int, engine: Engine) -> tuple[Svd, list[bool]]:
    """Decompose the matrices of a stack, and tell which results are wrong."""
    G, Q = stack.G, None
    if rank:
        S, Q = eigen(G, engine)
        U = Q[..., :rank].contiguous()
        Vh = _right(stack, U, S)
    else:
        S = roots(engine.eigenvalues(G))
        U, Vh = G.new_empty(*G.shape[:2], 0), G.new_empty(len(G), 0, stack.matrices.width)
    svd = Svd(U, S, Vh)
    poor = S[:, -1] < VALUES_FLOOR * S[:, 0]
    if rank:
        poor |= S[:, rank - 1] <= VECTORS_FLOOR * S[:, 0]
    wrong, is_poor = torch.stack([_wrong(stack, svd), poor]).tolist()
    positions = [i for i in range(len(G)) if is_poor[i] and not wrong[i]]
    if positions:
        _refine(stack, positions, None if Q is None else rows(Q, positions), svd, engine)
        wrong = _wrong(stack, svd).tolist()
    if stack.scale is not None:
        svd = replace(svd, S=S * stack.scale)
    return (stack.restore(svd, range(len(G))) if stack.restore else svd), wrong


def _put(x: Tensor, positions: Sequence[int], values: Tensor) -> None:
    x.index_copy_(0, torch.tensor(positions).to(x.device), values)


def _right(stack: Stack, U: Tensor, S: Tensor) -> Tensor:
    """Return V^T = U^T W / S."""
    Vh = torch.cat([U.mT @ panel.double() for panel in stack.matrices.panels()], dim=-1)
    return Vh.div_(S[:, : U.shape[-1], None])


def _wrong(stack: Stack, svd: Svd) -> Tensor:
    wrong = wrong_values(stack.G, svd.S)
    if svd.U.shape[-1]:
        wrong |= wrong_vectors(stack.G, svd.S, svd.U)
    return wrong if stack.suspect is None else wrong | stack.suspect


def _refine(
    stack: Stack, positions: Sequence[int], Q: Tensor | None, svd: Svd, engine: Engine
) -> None:
    """Refine some matrices of a stack in place, as many at a time as its memory allows."""
    k, n, rank = stack.G.shape[-1], stack.matrices.width, svd.U.shape[-1]
    count = max(1, STACK_BYTES // (8 * (3 * k * n + 8 * k * k)))
    for start in range(0, len(positions), count):
        chosen = positions[start : start + count]
        if Q is None:
            S, vectors = eigen(rows(stack.G, chosen), engine)
        else:
            S, vectors = rows(svd.S, chosen), Q[start : start + count]
        better = refine(stack.matrices.whole(chosen), S, vectors, rank, engine)
        _put(svd.S, chosen, better.S)
        if rank:
            _put(svd.U, chosen, better.U)
            _put(svd.Vh, chosen, better.Vh)
