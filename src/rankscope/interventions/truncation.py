"""Truncated SVDs of a network's matrices (yunis2024, fig. 6), or of their changes."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from numbers import Integral, Real
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.interventions.rewriting import (
    last_linear,
    plain_copy,
    replace_matrices,
    require_apart,
    require_replaceable,
    require_whole,
)
from rankscope.matrices import View, Views, difference, manifest, reference_weights, views
from rankscope.matrices.source import Source, opened
from rankscope.metrics import energy_rank
from rankscope.spectra import Svd, decompose

Part = Literal["top", "bottom"]
# Number of leading directions of k, from the singular values; without these, the most it may be.
Count = Callable[[int, Tensor | None], int]
# One number of directions for all matrices, or by name or pattern.
Ranks = int | Mapping[str, int]


def truncate(
    model: nn.Module,
    *,
    keep: float | None = None,
    rank: Ranks | None = None,
    energy: float | None = None,
    part: Part = "top",
    reference: Source | None = None,
    skip: str | Collection[str] | None = None,
    decompositions: Mapping[str, Svd] | None = None,
) -> nn.Module:
    """Return a copy of `model` in which every matrix is the top (or bottom) part of its SVD.

    With a reference, such as the initial weights W0, every matrix is W0 plus that part of the SVD
    of its change W - W0.

    keep, rank, energy: how many of the k = min(m, n) directions to keep; pass one of them. A share
        of them, 0.5 by default; a number of them, at most k; or, for the top part, as few as hold
        this share of the sum of squared singular values.

    Where the model computes a weight from parts (weight norm, pruning, adapters), the copy stores
    the truncated weight itself instead of the parts.

    The top part is the best approximation by that many directions; a share is rounded to the
    nearest number, ties up. The bottom part is what the other directions leave over:
    top(keep) + bottom(1 - keep) = W. Tied weights stay tied. BatchNorm statistics stay those of
    `model`; measure them again:

        half = rankscope.truncate(model, keep=0.5)
        generator = torch.Generator().manual_seed(0)
        reestimate_batchnorm(half, sample_batches(images, generator=generator))

    rank: with numbers by name or pattern, the matrices named are cut and the others stay whole.
        A whole name counts before patterns, and of these the first. Parts may be named, so that
        each head is cut by itself:

        slim = rankscope.truncate(model, reference=start, rank={"*.h*.q": 4, "*.h*.k": 4})

    reference: a state dict, a model, or the path of a checkpoint of the same network.
    skip: names or patterns (`blocks.*.w1`) of matrices to leave whole, () for none. The default is
        the last `nn.Linear` in the order of registration, as in the paper. An embedding tied to it
        stays whole too. Where `rank` names matrices, the default is none.
    decompositions: known decompositions by name, such as a snapshot's, or those of the changes from
        the reference. The rest is decomposed here.
    """
    counts = leading_counts(keep, rank, energy, part)
    require_whole(model)

    changed, refused = plain_copy(model)
    matrices = selected(changed, rank, skip)
    require_replaceable(matrices, refused)
    start = None if reference is None else starting_point(model, matrices, reference)
    changes: Mapping[str, View] = matrices if start is None else differences(matrices, start)
    svds = leading_directions(changes, counts, decompositions or {})

    def replacement(view: View) -> Tensor:
        k, svd = min(view.m, view.n), svds[view.name]
        r = counts(view.name)(k, svd.S)
        if r == (k if part == "top" else 0):
            return view.W  # to the last digit
        change = changes[view.name].W.double()
        top = projected(change, svd.U[:, :r] if view.m <= view.n else svd.Vh[:r].mT)
        remaining = top if part == "top" else change - top
        return remaining if start is None else start[view.name].W.to(change) + remaining

    replace_matrices(changed, matrices, replacement)
    return changed


def leading_counts(
    keep: float | None, rank: Ranks | None, energy: float | None, part: Part
) -> Callable[[str], Count]:
    """Return a function from a matrix's name to its number of leading directions."""
    if not isinstance(rank, Mapping):
        count = leading_count(keep, rank, energy, part)
        return lambda name: count
    if not rank:
        raise ValueError("rank names no matrix; pass a number, or numbers by name or pattern")
    leading_count(keep, next(iter(rank.values())), energy, part)  # raises if one too many is given
    by_rank = {r: leading_count(None, r, None, part) for r in rank.values()}
    return lambda name: by_rank[rank_of(name, rank)]


def leading_count(keep: float | None, rank: int | None, energy: float | None, part: Part) -> Count:
    """Return the number of leading directions that `truncate` keeps as top, or takes away."""
    if part not in ("top", "bottom"):
        raise ValueError(f"part must be 'top' or 'bottom', got {part!r}")
    options = {"keep": keep, "rank": rank, "energy": energy}
    if len(names := [name for name, value in options.items() if value is not None]) > 1:
        raise ValueError(f"pass one of keep, rank and energy, got {' and '.join(names)}")
    for name, value in options.items():
        kind = Integral if name == "rank" else Real
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            a_number = "a whole number" if name == "rank" else "a number"
            raise ValueError(f"{name} is {a_number}, got {value!r}")
    if rank is not None:
        if rank < 0:
            raise ValueError(f"rank is a number of directions, 0 or more, got {rank}")
        return lambda k, S: min(rank, k) if part == "top" else max(k - rank, 0)
    if energy is not None:
        if part == "bottom":
            raise ValueError("energy counts from the top; pass keep or rank for the bottom part")
        # A zero matrix has no energy, and no direction holds any of it.
        return lambda k, S: k if S is None else int(energy_rank(S, energy).nan_to_num(0))
    share = 0.5 if keep is None else keep
    if not 0 <= share <= 1:
        raise ValueError(f"keep is the share of directions kept, between 0 and 1, got {keep}")
    return lambda k, S: directions_kept(k, share if part == "top" else 1 - share)


def rank_of(name: str, ranks: Mapping[str, int]) -> int:
    """Return the number of a name, or of the first pattern that matches it."""
    if name in ranks:
        return ranks[name]
    return next(r for pattern, r in ranks.items() if fnmatch(name, pattern))


def selected(model: nn.Module, rank: Ranks | None, skip: str | Collection[str] | None) -> Views:
    """Return the matrices of `model` to truncate: those that `rank` names, or whole ones."""
    if not isinstance(rank, Mapping):
        return views(model, exclude=last_linear(model) if skip is None else skip)
    matrices = views(model, include=list(rank), exclude=skip, parts=True)
    require_apart(matrices, {name: rank_of(name, rank) for name in matrices})
    return matrices


def starting_point(model: nn.Module, matrices: Views, reference: Source) -> Views:
    """Return the same matrices, which are some of the model's, read from the reference."""
    parameters = tuple(dict.fromkeys(reading.parameter for reading in matrices.readings.values()))
    weights = reference_weights(
        opened(reference),
        parameters,
        manifest(model).effective,
        ties=matrices.manifest.ties,
    )
    for name in parameters:
        expected, shape = tuple(matrices.tensors[name].shape), tuple(weights[name].shape)
        if expected != shape:
            raise ValueError(
                f"the reference's tensor {name!r} has shape {shape}, the model's {expected}; pass "
                "a checkpoint of the same model"
            )
    return replace(matrices, tensors=weights)


def differences(matrices: Views, start: Views) -> dict[str, View]:
    """Return each matrix minus the starting one."""
    return {
        name: replace(view, W=difference(view.W, start[name].W.to(view.W.device)))
        for name, view in matrices.items()
    }


def directions_kept(k: int, share: float) -> int:
    """Return the number of directions in a share of k: the nearest, ties up (2 of 3 at 0.5)."""
    # Without the inner rounding, 0.1 * 5 and (1 - 0.9) * 5 fall on different sides of the tie.
    return math.floor(round(share * k, 9) + 0.5)


def projected(W: Float[Tensor, "m n"], directions: Float[Tensor, "k r"]) -> Float[Tensor, "m n"]:
    """Return U U^T W if m <= n, else W V V^T: the shorter vectors suffice and cost less.

    With the r leading directions, this is the best approximation of W of rank r.
    """
    m, n = W.shape
    basis = directions.to(W)
    return basis @ (basis.mT @ W) if m <= n else (W @ basis) @ basis.mT


def leading_directions(
    matrices: Mapping[str, View], counts: Callable[[str], Count], known: Mapping[str, Svd]
) -> dict[str, Svd]:
    """Return the `known` decompositions and those of the other matrices, with enough directions."""
    ranks = {
        name: counts(name)(min(view.m, view.n), known[name].S if name in known else None)
        for name, view in matrices.items()
    }
    for name in matrices.keys() & known.keys():
        available = min(known[name].U.shape[1], known[name].Vh.shape[0])
        if available < ranks[name]:
            raise ValueError(
                f"matrix {name!r}: {ranks[name]} directions are needed, its decomposition has "
                f"{available}; decompose with more, or leave it out of `decompositions`"
            )
    missing = {name: view for name, view in matrices.items() if name not in known}
    return {**known, **decompose(missing, ranks=ranks)}
