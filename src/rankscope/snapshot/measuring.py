"""Measurement of one snapshot: every matrix is decomposed once."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rankscope.matrices import (
    Product,
    ProductReading,
    Reading,
    View,
    difference,
    product_change,
)
from rankscope.overlaps import Overlap
from rankscope.overlaps import measure as measure_overlap
from rankscope.snapshot.planning import Plan, change_name, change_rank
from rankscope.snapshot.portions import padded, portions
from rankscope.snapshot.spectrum import MISSING, Spectrum, spectrum_of, values_of, zero
from rankscope.snapshot.storage import STATUS
from rankscope.spectra import Carried, Svd, decompose, decompose_leading

Solve = Callable[..., dict[str, Any]]  # Svd, or Leading

# Of leading parts: the norm of what they leave out exceeds the least possible one by 0.01%.
TOLERANCE = 1e-4


class Snapshot(NamedTuple):
    """Result of `measure`.

    values: stored variables by name.
    failed: names of what could not be decomposed: "fc", "change of fc".
    directions: the directions that the plan asks for, as columns: of U if m <= n, else of V.
    """

    values: dict[str, np.ndarray]
    failed: tuple[str, ...]
    directions: dict[str, Tensor]


def measure(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None = None,
    *,
    threads: int | None = None,
    carried: Carried | None = None,
) -> Snapshot:
    """Measure one snapshot; each matrix is decomposed once.

    Changes are measured for whole matrices only. Parts serve the overlaps they enter.

    carried: what earlier snapshots of the same plan and reference know of frozen tensors.
    """
    failed: list[str] = []
    solve: Solve = partial(solver_of(plan), threads=threads, on_failure=failed.extend)
    if carried is not None and plan.frozen:
        solve = carried.around(solve, tensors, frozen=plan.frozen, sources=plan.sources)
    spectra, changes, vectors = _matrices(plan, tensors, reference, solve)
    values = {
        **values_of(spectra, plan),
        "status": np.array([_status(spectrum.S) for spectrum in spectra], dtype=np.int8),
    }
    if reference is not None:
        values |= values_of(changes, plan, prefix="change_")
    if plan.products:
        values |= _products(plan, tensors, reference, solve)
    if plan.pairs:
        values |= _alignments(plan, vectors)
    directions = {name: _short_side(vectors[name], rank) for name, rank in plan.directions.items()}
    return Snapshot(values, tuple(failed), directions)


def solver_of(plan: Plan) -> Solve:
    """Return the function that decomposes for a plan: all values, or the leading ones."""
    if plan.leading is None:
        return decompose
    return partial(decompose_leading, rank=plan.leading, tolerance=TOLERANCE)


def _matrices(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    solve: Solve,
) -> tuple[list[Spectrum], list[Spectrum], dict[str, Svd]]:
    # Query heads that share a key head name the same matrix; it is decomposed under one name.
    names: dict[Reading, str] = {}
    first_name = {r.name: names.setdefault(replace(r, name=""), r.name) for r in plan.readings}
    paired = {first_name[name] for pair in plan.pairs for name in (pair.earlier, pair.later)}
    spectra: dict[str, Spectrum] = {}
    changes: dict[str, Spectrum] = {}
    vectors: dict[str, Svd] = {}
    unique = [reading for reading in plan.readings if first_name[reading.name] == reading.name]
    for portion in portions(unique, size=lambda reading: reading.m * reading.n):
        jobs: dict[str, Tensor | View | Product] = {}
        for reading in portion:
            W = reading.view(tensors[reading.parameter]).W
            jobs[reading.name] = W
            if reference is None or reading.part_of or reading.parameter not in reference:
                continue
            moved = difference(W, reading.view(reference[reading.parameter]).W)
            if moved.any():
                jobs[change_name(reading.name)] = moved
            else:  # at the first snapshot, and of frozen weights
                changes[reading.name] = zero(min(moved.shape), plan)
        ranks = {reading.name: plan.top for reading in portion if reading.name in paired}
        for reading in portion:
            if (rank := plan.directions.get(reading.name, 0)) > ranks.get(reading.name, 0):
                ranks[reading.name] = rank
        svds = solve(jobs, ranks=ranks)
        for reading in portion:
            spectra[reading.name] = spectrum_of(svds[reading.name], plan)
            change = svds.get(change_name(reading.name))
            stored = MISSING if change is None else spectrum_of(change, plan)
            changes.setdefault(reading.name, stored)
        vectors |= {name: Svd(svds[name].U, svds[name].S, svds[name].Vh) for name in ranks}
    order = [first_name[reading.name] for reading in plan.readings]
    by_name = {name: vectors[first] for name, first in first_name.items() if first in vectors}
    return [spectra[name] for name in order], [changes[name] for name in order], by_name


def _short_side(svd: Svd, rank: int) -> Tensor:
    short = svd.U if svd.U.shape[0] <= svd.Vh.shape[1] else svd.Vh.mT
    return short[:, :rank].clone()  # a view would hold, and send, all directions


def _products(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    solve: Solve,
) -> dict[str, np.ndarray]:
    spectra: dict[str, Spectrum] = {}
    for portion in portions(plan.products, size=change_size):
        jobs: dict[str, Tensor | View | Product] = {}
        for reading in portion:
            now = reading.product(tensors)
            jobs[reading.name] = now
            factors = {factor.parameter for factor in reading.readings}
            if reference is None or not factors <= reference.keys():
                continue
            before = reading.product(reference)
            if _same(now, before):
                spectra[change_name(reading.name)] = zero(change_rank(reading), plan)
            else:
                jobs[change_name(reading.name)] = product_change(now, before)
        spectra |= {name: spectrum_of(svd, plan) for name, svd in solve(jobs).items()}
    names = [reading.name for reading in plan.products]
    values = values_of([spectra[n] for n in names], plan, prefix="product_")
    if reference is not None:
        changes = [spectra.get(change_name(n), MISSING) for n in names]
        values |= values_of(changes, plan, prefix="product_change_")
    return values


def _same(now: Product, before: Product) -> bool:
    """Return whether both products have equal, finite factors."""
    moves = (difference(now.left, before.left), difference(now.right, before.right))
    return not any(move.any() for move in moves)


def change_size(product: ProductReading) -> int:
    return 2 * (product.m + product.n) * product.r


def _alignments(plan: Plan, vectors: Mapping[str, Svd]) -> dict[str, np.ndarray]:
    overlaps: list[Overlap] = [measure_overlap(pair, vectors, top=plan.top) for pair in plan.pairs]
    return {
        "alignment": padded([_array(o.diagonal) for o in overlaps], plan.top),
        "alignment_background": np.array([float(o.background) for o in overlaps]),
        "alignment_normalized": padded([_array(o.normalized_diagonal) for o in overlaps], plan.top),
        "alignment_normalized_background": np.array(
            [float(o.normalized_background) for o in overlaps]
        ),
    }


def _status(S: np.ndarray) -> int:
    if not np.isfinite(S).all():
        return STATUS.index("failed")
    return STATUS.index("ok" if S.any() else "zero")


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
