"""Leading parts of stacks of matrices on a GPU, from their Gram matrices.

Matrices of one kind are solved together. The host reads a few numbers for each stack: which
matrices are finite and not zero, after each polynomial which go on, then which pass the checks.
Those that are too hard for Gram matrices are left to the solver of single matrices.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.spectra.certificate_stacks import Bound, eigenvalues_left_out
from rankscope.spectra.chebyshev import (
    Block,
    columns_of,
    excess_of,
    leading_block,
    left_out,
    residuals,
)
from rankscope.spectra.cusolver import engine_on
from rankscope.spectra.engine import Engine
from rankscope.spectra.guards import rounding_error
from rankscope.spectra.leading_part import CANCELLED, Leading, constant
from rankscope.spectra.solvers import VECTORS_FLOOR, Svd
from rankscope.spectra.stacks import COLUMNS, Stack, gathered, is_tall
from rankscope.spectra.task import Task, grouped

# Memory of a stack. With the portions of a snapshot it stays below 2 GiB beside the weights.
STACK_BYTES = 5 << 28


class Solved(NamedTuple):
    """Leading part of a task, or None if it is left to others.

    wrong: a solver of the GPU failed a check.
    """

    task: Task
    part: Leading | None
    wrong: bool = False


def solve(tasks: Sequence[Task], tolerance: float) -> list[Solved]:
    """Solve tasks of any kinds, whose matrices are large; leave out those larger than a stack."""
    fitting = [task for task in tasks if bytes_of(task) <= STACK_BYTES]
    return [solved for stack in stacks_of(fitting) for solved in solve_stack(stack, tolerance)]


def stacks_of(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield tasks of one kind, in lists that fit into memory."""
    for same_kind in grouped(tasks):
        count = STACK_BYTES // bytes_of(same_kind[0])
        yield from (same_kind[i : i + count] for i in range(0, len(same_kind), count))


def bytes_of(task: Task) -> int:
    """Memory that a task takes in a stack, in the largest of its stages."""
    k, rank, width = task.k, task.directions, max(max(shape) for shape in task.shapes)
    square, panel = 8 * k * k, k * min(width, COLUMNS) * (24 if task.before else 12)
    if len(task.shapes) == 2 or task.factors[0].dtype == torch.float64:
        panel = 24 * task.numbers + 8 * k * width
    directions, block = 8 * rank * (k + 2 * width), 8 * k * columns_of(k, rank)
    return square + directions + max(panel + 3 * block, square // 2 + 8 * block)


def solve_stack(
    tasks: Sequence[Task], tolerance: float, engine: Engine | None = None
) -> list[Solved]:
    """Solve tasks of one kind; halves of a stack on which the solver stops are tried again."""
    try:
        return _solve(tasks, tolerance, engine or engine_on(tasks[0].factors[0].device))
    except (LinAlgError, torch.OutOfMemoryError):
        pass  # and let go of the memory that the exception holds
    if len(tasks) == 1:
        return [Solved(tasks[0], None, wrong=True)]
    half = len(tasks) // 2
    return [
        *solve_stack(tasks[:half], tolerance, engine),
        *solve_stack(tasks[half:], tolerance, engine),
    ]


def _solve(tasks: Sequence[Task], tolerance: float, engine: Engine) -> list[Solved]:
    stack, rank = gathered(tasks), tasks[0].directions
    states = _states(stack)
    values = {"zero": 0.0, "bad": torch.nan}
    results = [
        Solved(task, constant(task.shape, rank, values[state], task.factors[0].device))
        for task, state in zip(tasks, states, strict=True)
        if state != "solve"
    ]
    if positions := [i for i, state in enumerate(states) if state == "solve"]:
        chosen = [tasks[i] for i in positions]
        stack = stack.choose(positions)
        results += _solve_finite(chosen, stack, tolerance, engine)
    return results


def _states(stack: Stack) -> list[str]:
    """Return for each matrix whether to "solve" it, or that it is "zero" or "bad"."""
    energy = stack.G.diagonal(dim1=-2, dim2=-1).sum(-1)
    finite = stack.ranges.isfinite().all(1) & energy.isfinite()
    flags = torch.stack([finite, energy == 0]).tolist()
    return [
        "bad" if not is_finite else "zero" if is_zero else "solve"
        for is_finite, is_zero in zip(*flags, strict=True)
    ]


def _solve_finite(
    tasks: list[Task], stack: Stack, tolerance: float, engine: Engine
) -> list[Solved]:
    rank = tasks[0].directions
    block = leading_block(stack.G, rank, tolerance=tolerance, engine=engine)
    bound = eigenvalues_left_out(stack.G, block.X[..., :rank], engine)
    excess = _excess(stack.G, block, bound, rank)
    flags = [_hard(stack.G, block, rank), _wrong(block, bound, rank), ~(excess <= tolerance)]
    if stack.suspect is not None:
        flags[1] = flags[1] | stack.suspect
    parts = _parts(stack, block, bound, excess, rank)
    results = []
    for i, (hard, wrong, vague) in enumerate(torch.stack(flags, dim=1).tolist()):
        part = None if hard or wrong or vague else parts[i]
        results.append(
            Solved(
                tasks[i],
                part.mT if part is not None and is_tall(tasks[i]) else part,
                wrong=wrong and not hard,
            )
        )
    return results


def _hard(G: Tensor, block: Block, rank: int) -> Bool[Tensor, " b"]:
    """Tell for which matrices Gram matrices are not accurate enough."""
    largest, last = block.values[:, 0], block.values[:, rank - 1]
    energy = G.diagonal(dim1=-2, dim2=-1).sum(-1)
    cancelled = energy - block.values[:, :rank].sum(-1) < CANCELLED * energy
    return (last <= VECTORS_FLOOR**2 * largest) | cancelled


def _wrong(block: Block, bound: Bound, rank: int) -> Bool[Tensor, " b"]:
    """Tell for which matrices X^T G X is not the diagonal of the values, or X not orthonormal."""
    X, values = block.X[..., :rank], block.values[:, :rank]
    errors = X.mT @ block.GX[..., :rank] - torch.diag_embed(values)
    tolerance = rounding_error(X.shape[-2])
    right = errors.abs().amax((-2, -1)) <= tolerance * values[:, 0]
    right &= (bound.doubt <= tolerance) & (values.diff(dim=-1) <= 0).all(-1)
    return ~right


def _excess(G: Tensor, block: Block, bound: Bound, rank: int) -> Float[Tensor, " b"]:
    """Estimate the excess from residuals, and from larger values that the search came upon."""
    missed = (bound.values - block.values[:, rank - 1, None]).clamp(min=0.0).sum(-1)
    return excess_of(G, block, rank).maximum(missed / (2 * left_out(G, block, rank)))


def _parts(stack: Stack, block: Block, bound: Bound, excess: Tensor, rank: int) -> list[Leading]:
    energy = stack.G.diagonal(dim1=-2, dim2=-1).sum(-1)
    eigenvalues = block.values[:, :rank]
    S, rest = eigenvalues.sqrt(), left_out(stack.G, block, rank).sqrt()
    rounding = rounding_error(stack.G.shape[-1]) * eigenvalues[:, 0]
    remainder = (bound.eigenvalue + rounding).sqrt().minimum(rest)
    sizes = [energy.sqrt(), remainder, rest]
    rows = [S, residuals(block, rank) / S]
    if stack.scale is not None:
        sizes = [size * stack.scale[:, 0] for size in sizes]
        rows = [row * stack.scale for row in rows]
    U = block.X[..., :rank].contiguous()
    svd = Svd(U, S, _right(stack, U, S))
    if stack.restore is not None:
        svd = stack.restore(svd, range(len(U)))
    columns = torch.tensor(block.X.shape[-1]).to(U.device)
    frobenius, remainder, rest = sizes
    return [
        Leading(
            U=svd.U[i],
            S=rows[0][i],
            Vh=svd.Vh[i],
            frobenius=frobenius[i],
            residuals=rows[1][i],
            remainder=remainder[i],
            remainder_norm=rest[i],
            excess=excess[i],
            columns=columns,
        )
        for i in range(len(U))
    ]


def _right(stack: Stack, U: Tensor, S: Tensor) -> Float[Tensor, "b r n"]:
    """Return V^T = U^T W / S."""
    Vh = torch.cat([U.mT @ panel.double() for panel in stack.matrices.panels()], dim=-1)
    return Vh.div_(S[:, :, None])
