"""Leading eigenvectors of stacks of Gram matrices, by products of large matrices.

A Chebyshev polynomial of G is at most 1 on the eigenvalues that are not wanted and grows fast above
them. Applied to a block of columns it leaves the leading eigenvectors. An orthonormal basis of the
block then gives Ritz vectors, whose smallest value tells the next polynomial where to grow.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.spectra.engine import Engine
from rankscope.spectra.leading_part import CANCELLED
from rankscope.spectra.orthonormal import orthonormal, unit

SURPLUS = 2  # columns of a block for each wanted direction
FEWEST = 32  # columns of a block, at least
# Logarithm of how far the first column may outgrow the last one before columns are made orthogonal
# again. The first block is random and mixes all eigenvectors; later blocks approximate them.
FIRST_SPREAD, SPREAD = math.log(1e6), math.log(1e12)
FIRST, LONGEST = 6, 24  # degrees of the first polynomial and of a later one
PASSES = 12  # later polynomials, at most
MARGIN = 4.0  # errors aim so far below the tolerance
GROWTH_SHARE = 0.75  # of the growth that Ritz values promise, which overestimate it
RANDOM_SHARE = 1e-6  # of a random block, which keeps columns independent at any rank of G
# Columns with residuals below this share of the largest eigenvalue are known if they are so far
# above the cut that they would limit degrees.
EXACT, OUTLYING = 1e-11, 10.0
NARROW = 0.99  # share of the last wanted value that a cut is below
HOPELESS = 1e-9  # share of the largest eigenvalue below which eigenvectors are mostly noise
SEED = 0xCEB


class Block(NamedTuple):
    """Ritz vectors X of G, leading first, with G X and the Ritz values."""

    X: Float[Tensor, "b k c"]
    GX: Float[Tensor, "b k c"]
    values: Float[Tensor, "b c"]


def columns_of(k: int, rank: int) -> int:
    """Return how many columns the blocks for `rank` directions have."""
    return min(k, max(SURPLUS * rank, FEWEST))


def leading_block(
    G: Float[Tensor, "b k k"], rank: int, *, tolerance: float, engine: Engine
) -> Block:
    """Return Ritz vectors whose excess is within the tolerance, or those after all passes."""
    Y = _begun(G, columns_of(G.shape[-1], rank))
    return _converged(G, ritz(G, orthonormal(Y), engine), rank, tolerance, engine, PASSES)


def _converged(
    G: Tensor, block: Block, rank: int, tolerance: float, engine: Engine, passes: int
) -> Block:
    """Apply polynomials until no matrix needs another one.

    Once at most half of a stack needs it, that half is copied and goes on alone.
    """
    for passes_left in range(passes, 0, -1):
        excess = excess_of(G, block, rank)
        known = _known(block, rank)
        degrees = _degrees(block, rank, excess / tolerance, known)
        rows = _needed(block, rank, excess, tolerance), degrees, known.any(-1).double()
        numbers = torch.stack(rows).tolist()
        active = [i for i, needed in enumerate(numbers[0]) if needed]
        if not active:
            break
        if 2 * len(active) <= len(G):
            index = torch.tensor(active).to(G.device)
            unfinished = Block(*(x.index_select(0, index) for x in block))
            finished = _converged(
                G.index_select(0, index), unfinished, rank, tolerance, engine, passes_left
            )
            return Block(*(x.index_copy(0, index, y) for x, y in zip(block, finished, strict=True)))
        span = int(min(numbers[1])), int(max(numbers[1][i] for i in active))
        Y = _polynomial(G, block, rank, degrees, span, known if any(numbers[2]) else None)
        block = ritz(G, orthonormal(Y), engine)
    return block


def excess_of(G: Float[Tensor, "b k k"], block: Block, rank: int) -> Float[Tensor, " b"]:
    """Estimate the relative excess of the truncation error over the least one.

    As `krylov.excess_of` does for one matrix.
    """
    wanted = block.values[:, :rank]
    following = block.values[:, rank : rank + 1]
    lengths = residuals(block, rank)
    distances = wanted - following if following.shape[1] else wanted
    moves = torch.where(distances > lengths, lengths.square() / distances, lengths)
    return moves.sum(-1) / (2 * left_out(G, block, rank))


def residuals(block: Block, rank: int) -> Float[Tensor, "b r"]:
    """Lengths of G x - theta x."""
    rest = block.GX[..., :rank] - block.X[..., :rank] * block.values[:, None, :rank]
    lengths: Tensor = torch.linalg.vector_norm(rest, dim=-2)
    return lengths


def left_out(G: Float[Tensor, "b k k"], block: Block, rank: int) -> Float[Tensor, " b"]:
    """Sum of the eigenvalues beside the first; at least CANCELLED of the sum of all."""
    energy = G.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (energy - block.values[:, :rank].sum(-1)).maximum(CANCELLED * energy)


def _needed(block: Block, rank: int, excess: Tensor, tolerance: float) -> Tensor:
    hopeless = block.values[:, rank - 1] < HOPELESS * block.values[:, 0]
    return ((excess > tolerance) & ~hopeless).double()


def _cut(block: Block, rank: int) -> Tensor:
    """Eigenvalue above which a polynomial grows; below the last wanted one even in a cluster."""
    last = block.values[:, -1].minimum(NARROW * block.values[:, rank - 1])
    return last.maximum(1e-12 * block.values[:, 0])


def _known(block: Block, rank: int) -> Bool[Tensor, "b c"]:
    """Tell which columns have converged and would outgrow all others."""
    largest, cut = block.values[:, :1], _cut(block, rank)[:, None]
    exact = residuals(block, block.X.shape[-1]) <= EXACT * largest
    return exact & (block.values > OUTLYING * cut)


def _degrees(
    block: Block, rank: int, excess: Float[Tensor, " b"], known: Bool[Tensor, "b c"]
) -> Float[Tensor, " b"]:
    """Degrees that bring the excess, in units of the tolerance, to 1, as far as columns allow."""
    cut = _cut(block, rank)
    largest = block.values.masked_fill(known, 0.0).amax(-1)
    first, last = _growth(largest, cut), _growth(block.values[:, rank - 1], cut)
    needed = torch.acosh(MARGIN * excess.sqrt().clamp(min=1.0)) / (GROWTH_SHARE * last)
    allowed = (SPREAD / first).floor()
    return needed.ceil().minimum(allowed).nan_to_num(nan=LONGEST).clamp(1, LONGEST)


def _growth(eigenvalue: Tensor, cut: Tensor) -> Tensor:
    """Growth of a polynomial's logarithm with its degree at an eigenvalue."""
    return torch.acosh((2 * eigenvalue / cut - 1).clamp(min=1.0))


def _begun(G: Tensor, columns: int) -> Tensor:
    """Return a random block, filtered as far as norms tell, without a wait."""
    X = normal(G, columns, SEED)
    Y = unit(G @ X) + RANDOM_SHARE * unit(X)
    GY = G @ Y
    # The largest eigenvalue is at least this, and seldom much more.
    largest = torch.linalg.vector_norm(GY, dim=-2).amax(-1)
    cut = G.diagonal(dim1=-2, dim2=-1).mean(-1)
    degrees = (FIRST_SPREAD / _growth(largest, cut)).floor().clamp(1, FIRST)
    return filtered(G, Y, GY, cut, degrees, (1, FIRST))


def normal(G: Tensor, columns: int, seed: int) -> Float[Tensor, "b k c"]:
    """Return the same random columns for each matrix, drawn where the matrices are."""
    device = G.device if G.device.type == "cuda" else torch.device("cpu")
    generator = torch.Generator(device).manual_seed(seed)
    X = torch.randn(G.shape[-1], columns, generator=generator, device=device, dtype=G.dtype)
    return X.to(G.device).expand(len(G), -1, -1)


def _polynomial(
    G: Tensor,
    block: Block,
    rank: int,
    degrees: Tensor,
    span: tuple[int, int],
    known: Tensor | None,
) -> Tensor:
    """Return a filtered block, with known columns as they were and kept out of all others."""
    cut = _cut(block, rank)
    if known is None:
        return filtered(G, block.X, block.GX, cut, degrees, span)
    own = known[:, None]
    left = (block.X * block.values[:, None]).masked_fill(~own, 0.0)
    X, GX = block.X.masked_fill(own, 0.0), block.GX.masked_fill(own, 0.0)
    Y = filtered(G, X, GX, cut, degrees, span, less=(left, block.X.mT))
    return torch.where(own, block.X, Y)


def filtered(
    G: Float[Tensor, "b k k"],
    X: Float[Tensor, "b k c"],
    GX: Float[Tensor, "b k c"],
    cut: Float[Tensor, " b"],
    degrees: Float[Tensor, " b"],
    span: tuple[int, int],
    *,
    less: tuple[Float[Tensor, "b k c"], Float[Tensor, "b c k"]] | None = None,
) -> Float[Tensor, "b k c"]:
    """Return T(G) X for Chebyshev polynomials T on 0 to cut, of a degree for each matrix.

    span: a lower bound on the degrees, and the degree at which all end.
    less: factors of a matrix to subtract from G.
    """
    shortest, longest = span
    cut, degrees = cut[:, None, None], degrees[:, None, None]
    before, now = X, GX * (2 / cut) - X
    for degree in range(2, longest + 1):
        scaled = now * (4 / cut)
        after = torch.baddbmm(before, G, scaled, beta=-1.0).sub_(now, alpha=2)
        if less is not None:
            after.baddbmm_(less[0], less[1] @ scaled, alpha=-1.0)
        if degree > shortest:
            after = torch.where(degrees < degree, now, after)
        before, now = now, after
    return now


def ritz(G: Float[Tensor, "b k k"], Q: Float[Tensor, "b k c"], engine: Engine) -> Block:
    """Return the Ritz vectors of orthonormal columns."""
    GQ = G @ Q
    H = Q.mT @ GQ
    # A factorisation that failed leaves NaN, which some solvers refuse for a whole stack.
    H = ((H + H.mT) / 2).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    values, Z = engine.eigenvectors(H)
    Z = Z.flip(-1)
    return Block(Q @ Z, GQ @ Z, values.flip(-1))
