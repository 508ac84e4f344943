"""Decompositions on a GPU: a few large launches, and hardly a moment when the host waits.

Gram matrices of one size share a call of the solver, whatever the shapes behind them, since a call
takes long for few matrices. The host reads twice for each stack of one kind: which matrices are
finite and have changed, then which are refined or fail a check. A matrix that fails is decomposed
on the CPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.spectra import host
from rankscope.spectra.cusolver import engine_on
from rankscope.spectra.engine import Engine
from rankscope.spectra.guards import Guarded, Sums, wrong_values, wrong_vectors
from rankscope.spectra.solvers import VALUES_FLOOR, VECTORS_FLOOR, Svd, eigen, refine
from rankscope.spectra.stacks import Dense, Sheets, Stack, bytes_of, gathered, is_tall, rows
from rankscope.spectra.task import Solved, Task, grouped, nan_svd, zero_svd

# Memory of what is solved at once. With a snapshot's portions it stays below 2 GiB.
BATCH_BYTES = 7 << 28


def solve(tasks: Sequence[Task]) -> list[Solved]:
    """Solve tasks of any kinds."""
    return [solved for batch in batches(tasks) for solved in solve_batch(batch)]


def batches(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield tasks whose Gram matrices have one size, in lists that fit into memory."""
    by_size: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        by_size.setdefault((task.factors[0].device, task.k), []).append(task)
    for same_size in by_size.values():
        batch: list[Task] = []
        total = 0
        for task in (task for same_kind in grouped(same_size) for task in same_kind):
            if batch and total + bytes_of(task) > BATCH_BYTES:
                yield batch
                batch, total = [], 0
            batch.append(task)
            total += bytes_of(task)
        yield batch


def solve_batch(tasks: Sequence[Task], engine: Engine | None = None) -> list[Solved]:
    """Solve a batch; halves of one on which the solver stops are tried again."""
    if tasks[0].k == 0:
        return [Solved(task, nan_svd(task)) for task in tasks]
    try:
        return _solve(tasks, engine or engine_on(tasks[0].factors[0].device))
    except (LinAlgError, torch.OutOfMemoryError):
        pass  # and let go of the memory that the exception holds
    if len(tasks) == 1:
        return [_redone(tasks[0])]
    half = len(tasks) // 2
    return [*solve_batch(tasks[:half], engine), *solve_batch(tasks[half:], engine)]


def _solve(tasks: Sequence[Task], engine: Engine) -> list[Solved]:
    solved: list[Solved] = []
    chosen: list[tuple[list[Task], Stack]] = []
    for same_kind in grouped(tasks):
        stack = gathered(same_kind)
        states = stack.states(zero_known=same_kind[0].directions == 0)
        solved += [
            Solved(task, zero_svd(task)) if state == "zero" else Solved(task, nan_svd(task), True)
            for task, state in zip(same_kind, states, strict=True)
            if state != "solve"
        ]
        if positions := [i for i, state in enumerate(states) if state == "solve"]:
            chosen.append(([same_kind[i] for i in positions], stack.choose(positions)))
        del stack
    return solved + _solve_stacks(chosen, engine)


def _solve_stacks(chosen: list[tuple[list[Task], Stack]], engine: Engine) -> list[Solved]:
    """Solve stacks by one call of the solver, which overwrites their Gram matrices.

    All vectors cost a tenth more than values alone, and refining needs them.
    """
    if not chosen:
        return []
    counts = [len(tasks) for tasks, _ in chosen]
    G = torch.cat([stack.G for _, stack in chosen])
    chosen[:] = [(tasks, stack.without_gram()) for tasks, stack in chosen]
    sums = Sums.of(G)
    S, Q = eigen(G, engine)
    parts = zip(*(x.split(counts) for x in (S, Q, *sums)), strict=True)
    return [
        solved
        for (tasks, stack), (S, Q, *own_sums) in zip(chosen, parts, strict=True)
        for solved in _finished(tasks, stack, S, Q, Sums(*own_sums), engine)
    ]


def _finished(
    tasks: list[Task], stack: Stack, S: Tensor, Q: Tensor, sums: Sums, engine: Engine
) -> list[Solved]:
    """Check the decompositions of one kind, refine some, and redo those that are wrong."""
    svd, wrong = _checked(stack, S, Q, sums, tasks[0].directions, engine)
    return [
        _redone(task) if wrong[i] else Solved(task, part.mT if is_tall(task) else part)
        for i, task in enumerate(tasks)
        for part in (Svd(svd.U[i], svd.S[i], svd.Vh[i]),)
    ]


def _redone(task: Task) -> Solved:
    """Solve a task on the CPU and bring the result back."""
    (solved,) = host.solve_stack([task.at_host()])
    device = task.factors[0].device
    svd = Svd(*(x.to(device) for x in (solved.svd.U, solved.svd.S, solved.svd.Vh)))
    return Solved(task, svd, solved.failed, redone=True)


def _checked(
    stack: Stack, S: Tensor, Q: Tensor, sums: Sums, rank: int, engine: Engine
) -> tuple[Svd, list[bool]]:
    """Return the decompositions of a stack, and which of them are wrong."""
    U = Q[..., :rank].clone(memory_format=torch.contiguous_format)
    images = _images(stack.matrices, U)
    svd = Svd(U, S.clone(), images / S[:, :rank, None])
    poor = S[:, -1] < VALUES_FLOOR * S[:, 0]
    if rank:
        poor |= S[:, rank - 1] <= VECTORS_FLOOR * S[:, 0]
    wrong, is_poor = torch.stack([_wrong(stack, svd, images, sums), poor]).tolist()
    positions = [i for i in range(len(S)) if is_poor[i] and not wrong[i]]
    if positions:
        missed = _refine(stack, positions, Q, svd, engine)
        wrong = (missed | _wrong(stack, svd, svd.Vh * svd.S[:, :rank, None], sums)).tolist()
    if stack.scale is not None:
        svd = replace(svd, S=svd.S * stack.scale)
    return (stack.restore(svd, range(len(S))) if stack.restore else svd), wrong


def _images(matrices: Sheets | Dense, U: Float[Tensor, "b k r"]) -> Float[Tensor, "b r n"]:
    """Return U^T W."""
    if not U.shape[-1]:
        return U.new_empty(len(U), 0, matrices.width)
    return torch.cat([U.mT @ panel.double() for panel in matrices.panels()], dim=-1)


def _wrong(stack: Stack, svd: Svd, images: Tensor, sums: Sums) -> Bool[Tensor, " b"]:
    wrong = wrong_values(sums, svd.S)
    if svd.U.shape[-1]:
        wrong |= wrong_vectors(_residuals(stack.matrices, svd.U, svd.S, images), svd.S, svd.U)
    return wrong if stack.suspect is None else wrong | stack.suspect


def _wrong_basis(
    matrices: Sheets | Dense, S: Float[Tensor, "b k"], Q: Float[Tensor, "b k k"]
) -> Bool[Tensor, " b"]:
    """Tell for which matrices the columns of Q are not all their eigenvectors."""
    return wrong_vectors(_residuals(matrices, Q, S, _images(matrices, Q)), S, Q)


def _residuals(
    matrices: Sheets | Dense,
    U: Float[Tensor, "b k r"],
    S: Float[Tensor, "b k"],
    images: Float[Tensor, "b r n"],
) -> Float[Tensor, "b k r"]:
    """Return W W^T U - U S^2, where `images` are U^T W."""
    total = U * -S[:, None, : U.shape[-1]].square()
    start = 0
    for panel in matrices.panels():
        stop = start + panel.shape[-1]
        total.baddbmm_(panel.double(), images[..., start:stop].mT)
        start = stop
    return total


def _refine(
    stack: Stack, positions: Sequence[int], Q: Tensor, svd: Svd, engine: Engine
) -> Bool[Tensor, " b"]:
    """Refine some matrices of a stack in place, as many at a time as memory allows.

    Return which of them the solver got wrong. The sums of all values would not tell of small ones,
    nor the residuals of leading directions of those that small values are refined by.
    """
    k, n, rank = svd.S.shape[-1], stack.matrices.width, svd.U.shape[-1]
    wrong = torch.zeros(len(svd.S), dtype=torch.bool, device=svd.S.device)
    count = max(1, BATCH_BYTES // (8 * (3 * k * n + 8 * k * k)))
    for start in range(0, len(positions), count):
        chosen = positions[start : start + count]
        whole = stack.matrices.choose(chosen).whole()
        S, vectors = rows(svd.S, chosen), rows(Q, chosen)
        missed = _wrong_basis(Dense(whole), S, vectors)
        guard = Guarded(engine)
        better = refine(whole, S, vectors, rank, guard)
        index = torch.tensor(chosen).to(svd.S.device)
        wrong.index_copy_(0, index, guard.wrong | missed)
        svd.S.index_copy_(0, index, better.S)
        if rank:
            svd.U.index_copy_(0, index, better.U)
            svd.Vh.index_copy_(0, index, better.Vh)
    return wrong
