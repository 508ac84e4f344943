"""Stacks of matrices on a GPU, with their Gram matrices, gathered by a few large launches.

Columns are gathered by panels, so that float64 copies stay small. Products are reduced to smaller
matrices by a QR of their longer factors.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor

from rankscope.matrices.change import moves
from rankscope.matrices.difference import difference
from rankscope.spectra.guards import wrong_triangles
from rankscope.spectra.solvers import Svd
from rankscope.spectra.tall import triangular
from rankscope.spectra.task import Task, stacked

COLUMNS = 1024  # of a panel
SOLVER_BYTES = 3 << 19  # that cuSOLVER takes for each matrix beside four of its size


def bytes_of(task: Task) -> int:
    """Memory that a task takes in a batch, in the largest of its stages."""
    k, rank = task.k, task.directions
    square = 8 * k * k
    solver = 4 * square + SOLVER_BYTES
    vectors = 16 * rank * sum(max(shape) for shape in task.shapes)
    if _is_dense(task):
        inner = 8 * task.shapes[0][0] * task.shapes[0][1] if len(task.shapes) == 2 else 0
        return 2 * square + solver + vectors + 20 * task.numbers + inner
    panel = k * min(max(task.shapes[0]), COLUMNS) * (24 if task.before else 12)
    return vectors + square + max(solver, square + panel)


def is_tall(task: Task) -> bool:
    """Tell whether the transposed matrix is stacked; of a product, by its factors' lengths."""
    rows = task.shapes[0][0]
    return rows > (task.shapes[1][0] if len(task.shapes) == 2 else task.shapes[0][1])


@dataclass(frozen=True)
class Stack:
    """Wide matrices and their Gram matrices, of which none are left once they are solved.

    ranges: numbers that are all finite if a matrix is.
    moves: numbers that are all zero if a change is; None if the matrices are no changes.
    scale: what the matrices were divided by.
    suspect: those whose triangular factors are wrong.
    restore: turns decompositions at some positions into those of the products behind them.
    """

    matrices: "Sheets | Dense"
    G: Float[Tensor, "_ m m"]
    ranges: Num[Tensor, "b p"]
    moves: Num[Tensor, "b q"] | None = None
    scale: Float[Tensor, "b 1"] | None = None
    suspect: Bool[Tensor, " b"] | None = None
    restore: Callable[[Svd, Sequence[int]], Svd] | None = None

    def states(self, *, zero_known: bool) -> list[str]:
        """Return for each matrix whether to "solve" it, or that it is "zero" or "bad"."""
        finite = self.ranges.isfinite().all(1)
        zero = torch.zeros_like(finite)
        if self.moves is not None and zero_known:
            zero = self.moves.eq(0).all(1)
        flags = torch.stack([finite, zero]).tolist()
        return [
            "bad" if not is_finite else "zero" if is_zero else "solve"
            for is_finite, is_zero in zip(*flags, strict=True)
        ]

    def without_gram(self) -> "Stack":
        """Return the stack without the Gram matrices, whose memory is free again."""
        return replace(self, G=self.G.new_empty(0, *self.G.shape[1:]))

    def choose(self, positions: Sequence[int]) -> "Stack":
        """Return the matrices at these positions."""
        if len(positions) == len(self.G):
            return self
        scale, suspect, restore = self.scale, self.suspect, self.restore
        return Stack(
            matrices=self.matrices.choose(positions),
            G=rows(self.G, positions),
            ranges=rows(self.ranges, positions),
            scale=None if scale is None else rows(scale, positions),
            suspect=None if suspect is None else rows(suspect, positions),
            restore=None
            if restore is None
            else lambda svd, chosen: restore(svd, [positions[i] for i in chosen]),
        )


@dataclass(frozen=True)
class Sheets:
    """Matrices of at most 32 bits, whose columns are gathered when they are needed."""

    now: Sequence[Tensor]
    before: Sequence[Tensor]

    @property
    def width(self) -> int:
        return self.now[0].shape[1]

    def panels(self) -> Iterator[Num[Tensor, "b m c"]]:
        """Yield all columns, COLUMNS at a time."""
        for start in range(0, self.width, COLUMNS):
            yield self._columns(start, min(COLUMNS, self.width - start))

    def whole(self) -> Num[Tensor, "b m n"]:
        """Return the matrices."""
        return self._columns(0, self.width)

    def choose(self, positions: Sequence[int]) -> "Sheets":
        before = [self.before[i] for i in positions] if self.before else ()
        return Sheets([self.now[i] for i in positions], before)

    def _columns(self, start: int, width: int) -> Tensor:
        now = torch.stack([W.narrow(1, start, width) for W in self.now])
        if not self.before:
            return now
        return difference(now, torch.stack([W.narrow(1, start, width) for W in self.before]))


@dataclass(frozen=True)
class Dense:
    """Matrices in float64, whose squares overflow unless they are scaled."""

    W: Float[Tensor, "b m n"]

    @property
    def width(self) -> int:
        return self.W.shape[2]

    def panels(self) -> Iterator[Float[Tensor, "b m n"]]:
        """Yield all columns."""
        yield self.W

    def whole(self) -> Float[Tensor, "b m n"]:
        """Return the matrices."""
        return self.W

    def choose(self, positions: Sequence[int]) -> "Dense":
        return Dense(rows(self.W, positions))


def rows(x: Num[Tensor, "b ..."], positions: Sequence[int]) -> Num[Tensor, "c ..."]:
    """Return the rows at some positions, which ascend; x itself if these are all."""
    if len(positions) == len(x):
        return x
    return x.index_select(0, torch.tensor(positions).to(x.device))


def gathered(tasks: Sequence[Task]) -> Stack:
    """Return the stack of tasks of one kind; matrices that are tall become wide."""
    tasks = [_wide(task) for task in tasks]
    if len(tasks[0].factors) == 2:
        return _of_products(tasks)
    if _is_dense(tasks[0]):
        (W,) = stacked(tasks)
        ranges = _ranges(W)
        return _scaled(W, ranges, ranges if tasks[0].before else None)
    sheets = Sheets(
        [task.factors[0] for task in tasks], [before for task in tasks for before in task.before]
    )
    G, ranges = _gram(sheets)
    return Stack(sheets, G, ranges, ranges if tasks[0].before else None)


def _wide(task: Task) -> Task:
    if not is_tall(task):
        return task
    if len(task.factors) == 2:
        return replace(task, factors=task.factors[::-1], before=task.before[::-1])
    before = tuple(factor.mT for factor in task.before)
    return replace(task, factors=(task.factors[0].mT,), before=before)


def _is_dense(task: Task) -> bool:
    return len(task.factors) == 2 or task.factors[0].dtype == torch.float64


def _of_products(tasks: Sequence[Task]) -> Stack:
    factors = stacked(tasks)
    moved = torch.cat([_ranges(part) for part in moves(factors)], 1) if tasks[0].before else None
    left, right = (factor.double() for factor in factors)
    if tasks[0].directions:
        Q, R = torch.linalg.qr(right)
    else:
        Q, R = None, triangular(right)
    inner = left @ R.mT
    inner_ranges = _ranges(inner)
    wide = inner.mT if inner.shape[1] > inner.shape[2] else inner
    m, n = left.shape[1], right.shape[1]

    def restore(svd: Svd, chosen: Sequence[int]) -> Svd:
        svd = svd if wide is inner else svd.mT
        if Q is None:
            U, Vh = (svd.S.new_empty(len(chosen), *shape) for shape in ((m, 0), (0, n)))
            return Svd(U, svd.S, Vh)
        return Svd(svd.U, svd.S, svd.Vh @ rows(Q, chosen).mT)

    return replace(
        _scaled(wide, inner_ranges, moved),
        ranges=torch.cat([_ranges(left), _ranges(right), inner_ranges], 1),
        suspect=wrong_triangles(right, R),
        restore=restore,
    )


def _scaled(W: Tensor, ranges: Tensor, moved: Tensor | None) -> Stack:
    """Divide by the largest entries, so that squares do not overflow."""
    largest = ranges.abs().amax(1)
    scale = torch.where(largest > 0, largest, 1.0)[:, None]
    dense = Dense(W / scale[:, None])
    return Stack(dense, _gram(dense)[0], ranges, moved, scale)


def _gram(matrices: Sheets | Dense) -> tuple[Tensor, Tensor]:
    """Return W W^T in float64, and the largest and smallest entries of all panels."""
    G, ranges = None, []
    for panel in matrices.panels():
        ranges.append(_ranges(panel))
        D = panel.double()
        G = D @ D.mT if G is None else G.baddbmm_(D, D.mT)
    assert G is not None
    return G, torch.cat(ranges, 1)


def _ranges(x: Num[Tensor, "b m n"]) -> Num[Tensor, "b 2"]:
    return torch.stack([x.amax((1, 2)), x.amin((1, 2))], 1)
