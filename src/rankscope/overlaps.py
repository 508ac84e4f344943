"""Overlaps of singular directions of two matrices. yunis2024, Eq. 2, Eq. 3 and App. C.

Vectors that a pair cuts (centre tap, gate block, direction half) are shorter than 1. So every
overlap has a raw form, as in the paper, and a normalised form, which scales the cut vectors back to
unit length.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.pairs.pair import Cut, Pair, Side
from rankscope.spectra import Svd

STACKED = 1 << 24  # numbers of the vectors of pairs that are multiplied at once


class Overlap(NamedTuple):
    """Stored overlap of a pair: A_ii and the mean of the other entries, raw and normalised.

    Those of several pairs have a leading axis.
    """

    diagonal: Float[Tensor, "*batch i"]
    normalized_diagonal: Float[Tensor, "*batch i"]
    background: Float[Tensor, "*batch"]
    normalized_background: Float[Tensor, "*batch"]


class Agreement(NamedTuple):
    """|<u_i(now), u_i(before)>| of the output side, |<v_i(now), v_i(before)>| of the input side."""

    out_side: Float[Tensor, " i"]
    in_side: Float[Tensor, " i"]


def measure(pair: Pair, decompositions: Mapping[str, Svd], *, top: int = 100) -> Overlap:
    """Return the diagonals and backgrounds of a pair, from one product of its vectors."""
    return _overlap(*_meeting(pair, decompositions, top))


def measure_all(
    pairs: Sequence[Pair], decompositions: Mapping[str, Svd], *, top: int = 100
) -> Iterator[tuple[list[int], Overlap]]:
    """Yield the overlaps of many pairs, stacked by shape, with the positions of these pairs."""
    stacks: dict[tuple[object, ...], list[tuple[int, Tensor, Tensor]]] = {}
    for position, pair in enumerate(pairs):
        left, right = _meeting(pair, decompositions, top)
        kind = (left.shape, right.shape, left.device)
        stacks.setdefault(kind, []).append((position, left, right))
    for stack in stacks.values():
        _, left, right = stack[0]
        length = max(1, STACKED // (left.numel() + right.numel()))
        for start in range(0, len(stack), length):
            positions, lefts, rights = zip(*stack[start : start + length], strict=True)
            yield list(positions), _overlap(torch.stack(lefts), torch.stack(rights))


def _overlap(left: Float[Tensor, "*b d j"], right: Float[Tensor, "*b d k"]) -> Overlap:
    raw = _inner(left, right)
    normalized = _rescaled(raw, left, right)
    return Overlap(
        diagonal=raw.diagonal(dim1=-2, dim2=-1),
        normalized_diagonal=normalized.diagonal(dim1=-2, dim2=-1),
        background=background(raw),
        normalized_background=background(normalized),
    )


def overlap(
    pair: Pair, decompositions: Mapping[str, Svd], *, top: int = 100
) -> Float[Tensor, "j k"]:
    """A_jk = |<u_j, v'_k>| of the cut vectors; between 0 and 1. yunis2024 Eq. 2."""
    return _inner(*_meeting(pair, decompositions, top))


def normalized_overlap(
    pair: Pair, decompositions: Mapping[str, Svd], *, top: int = 100
) -> Float[Tensor, "j k"]:
    """A_jk with the cut vectors scaled to unit length; 0 for a vector of which nothing is left.

    Equals `overlap` if nothing is cut. The paper has raw values only, which the centre tap of a 3x3
    kernel shrinks to about a third.
    """
    left, right = _meeting(pair, decompositions, top)
    return _rescaled(_inner(left, right), left, right)


def alignment(
    pair: Pair, decompositions: Mapping[str, Svd], *, top: int = 100
) -> Float[Tensor, " i"]:
    """Diagonal A_ii, i <= top: 1 where the i-th directions coincide. yunis2024 Eq. 2."""
    return overlap(pair, decompositions, top=top).diagonal()


def normalized_alignment(
    pair: Pair, decompositions: Mapping[str, Svd], *, top: int = 100
) -> Float[Tensor, " i"]:
    """Diagonal of `normalized_overlap`."""
    return normalized_overlap(pair, decompositions, top=top).diagonal()


def mean_alignment(diagonal: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch"]:
    """a = mean of A_ii over i <= min(10, R). yunis2024 Eq. 3, which leaves R < 10 open."""
    return diagonal[..., :10].mean(-1)


def background(A: Float[Tensor, "*batch j k"]) -> Float[Tensor, "*batch"]:
    """Mean of the entries off the diagonal, the level of chance as measured; NaN for 1 x 1."""
    j, k = A.shape[-2:]
    diagonal = torch.eye(j, k, dtype=torch.bool, device=A.device)
    return A.masked_fill(diagonal, 0.0).sum((-2, -1)) / (j * k - min(j, k))


def chance_overlap(d: int) -> float:
    """sqrt(2 / (pi d)), the mean |<u, v>| of two random unit vectors in d dimensions, for large d.

    It is 0.05 at d = 256. The exact mean is 13% larger at d = 2 and 0.1% larger at d = 256.
    """
    return math.sqrt(2 / (math.pi * d))


def agreement(now: Svd, before: Svd, *, top: int = 100) -> Agreement:
    """Overlap of the leading directions of one matrix at two times; 1 where they stayed."""
    return Agreement(
        out_side=_inner(now.U[:, :top].double(), before.U[:, :top].double()).diagonal(),
        in_side=_inner(now.Vh[:top].double().mT, before.Vh[:top].double().mT).diagonal(),
    )


def balancedness(earlier: Num[Tensor, "d n"], later: Num[Tensor, "m d"]) -> Float[Tensor, ""]:
    """|W'^T W' - W W^T|_F / (|W'^T W'|_F + |W W^T|_F) of W before W'; 0 when balanced, at most 1.

    Theory predicts alignment 1 for balanced pairs of plain linear layers.
    """
    out_gram = earlier.double() @ earlier.double().mT  # (d, d)
    in_gram = later.double().mT @ later.double()  # (d, d)
    norm = torch.linalg.matrix_norm
    unbalanced: Tensor = norm(in_gram - out_gram) / (norm(in_gram) + norm(out_gram))
    return unbalanced


def _meeting(
    pair: Pair, decompositions: Mapping[str, Svd], top: int
) -> tuple[Float[Tensor, "d j"], Float[Tensor, "d k"]]:
    """Return the leading vectors of both matrices, as columns, cut to the entries that meet."""
    left = _vectors(pair.earlier, pair.earlier_side, pair.earlier_cut, decompositions, top)
    right = _vectors(pair.later, pair.later_side, pair.later_cut, decompositions, top)
    if len(left) != len(right):
        raise ValueError(
            f"pair {pair.name!r}: {len(left)} entries of the earlier vectors meet "
            f"{len(right)} of the later; "
            "give it an earlier_cut or later_cut that makes them equal"
        )
    return left, right


def _vectors(
    name: str, side: Side, cut: Cut | None, decompositions: Mapping[str, Svd], top: int
) -> Float[Tensor, "d k"]:
    if name not in decompositions:
        raise ValueError(
            f"matrix {name!r} is in a pair, but not among the decompositions; decompose it too"
        )
    decomposed = decompositions[name]
    vectors = decomposed.U if side == "out" else decomposed.Vh.mT
    if vectors.shape[1] == 0 and decomposed.S.numel() > 0:
        raise ValueError(
            f"matrix {name!r} was decomposed without vectors; "
            f"ask for them with ranks={{{name!r}: {top}}}"
        )
    vectors = vectors[:, :top].double()
    if cut is None:
        return vectors
    if len(vectors) != math.prod(cut.shape):
        raise ValueError(
            f"matrix {name!r}: vectors of {len(vectors)} entries do not fit the cut's shape "
            f"{cut.shape}; find its pairs again after changing the model"
        )
    return cut(vectors)


def _inner(
    left: Float[Tensor, "*b d j"], right: Float[Tensor, "*b d k"]
) -> Float[Tensor, "*b j k"]:
    # Cauchy-Schwarz bounds the overlap by 1; rounding may exceed it by an ulp. NaN stays NaN.
    return (left.mT @ right).abs().clamp(max=1)


def _rescaled(
    A: Float[Tensor, "*b j k"], left: Float[Tensor, "*b d j"], right: Float[Tensor, "*b d k"]
) -> Float[Tensor, "*b j k"]:
    lengths = left.norm(dim=-2)[..., :, None] * right.norm(dim=-2)[..., None, :]  # (b, j, k)
    return torch.where(lengths == 0, 0.0, A / lengths).clamp(max=1)
