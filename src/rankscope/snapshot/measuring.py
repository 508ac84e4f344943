"""Measurement of one snapshot: every matrix is decomposed once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rankscope.matrices import Change, Product, ProductReading, Reading, Weights
from rankscope.overlaps import measure_all as measure_overlaps
from rankscope.snapshot.planning import Plan, change_name
from rankscope.snapshot.portions import cut
from rankscope.snapshot.spectrum import (
    MISSING,
    Spectrum,
    at_host,
    numbers_of,
    spectra_of,
    values_of,
)
from rankscope.snapshot.storage import STATUS
from rankscope.spectra import Carried, Leading, Svd, decompose, decompose_leading
from rankscope.spectra.decomposition import Matrix, now_and_before
from rankscope.spectra.task import Task
from rankscope.spectra.truncation import is_small

Solve = Callable[..., dict[str, Any]]  # Svd, or Leading

# Of leading parts: the norm of what they leave out exceeds the least possible one by 0.01%.
TOLERANCE = 1e-4


class Snapshot(NamedTuple):
    """Result of `measure`.

    values: stored variables by name.
    failed: names of what could not be decomposed: "fc", "change of fc".
    directions: the directions that the plan asks for, as columns: of U if m <= n, else of V.
    redone: names of what a GPU got wrong and the CPU decomposed.
    """

    values: dict[str, np.ndarray]
    failed: tuple[str, ...]
    directions: dict[str, Tensor]
    redone: tuple[str, ...] = ()


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
    redone: list[str] = []
    solve: Solve = partial(
        solver_of(plan), threads=threads, on_failure=failed.extend, on_redone=redone.extend
    )
    if carried is not None and plan.frozen:
        solve = carried.around(solve, tensors, frozen=plan.frozen, sources=plan.sources)
    weights = _Weights(tensors, reference)
    spectra, changes, vectors = _matrices(plan, weights, solve)
    values = {
        **values_of(spectra, plan),
        "status": np.array([_status(spectrum.S) for spectrum in spectra], dtype=np.int8),
    }
    if reference is not None:
        values |= values_of(changes, plan, prefix="change_")
    if plan.products:
        values |= _products(plan, weights, solve)
    if plan.pairs:
        values |= _alignments(plan, vectors)
    directions = {name: _short_side(vectors[name], rank) for name, rank in plan.directions.items()}
    return Snapshot(values, tuple(failed), directions, tuple(redone))


def solver_of(plan: Plan) -> Solve:
    """Return the function that decomposes for a plan: all values, or the leading ones."""
    if plan.leading is None:
        return decompose
    return partial(_decompose_leading, plan.leading)


def _decompose_leading(
    leading: int,
    jobs: Mapping[str, Matrix],
    *,
    ranks: Mapping[str, int] = MappingProxyType({}),
    **options: Any,
) -> dict[str, Svd | Leading]:
    """Return leading parts of large matrices and all values of small ones, which takes less."""
    small = {
        name: job
        for name, job in jobs.items()
        if _takes_less_in_full(Task(name, *now_and_before(name, job)), leading, ranks.get(name, 0))
    }
    large = {name: job for name, job in jobs.items() if name not in small}
    parts = decompose_leading(large, leading, ranks=ranks, tolerance=TOLERANCE, **options)
    return {
        **decompose(small, ranks=ranks, **options),
        # Parts of frozen weights are kept for as long as the run, so only with what is asked for.
        **{name: x if name in ranks else x.without_directions() for name, x in parts.items()},
    }


def _takes_less_in_full(task: Task, leading: int, rank: int) -> bool:
    """Tell whether all values of a matrix take less time than the leading ones.

    Without directions the full solver of the CPU takes half its time.
    """
    k = task.k // 2 if task.on_cpu and rank == 0 else task.k
    return is_small(k, max(leading, rank))


class _Weights:
    """Tensors of a snapshot and of its reference, and the matrices that are read from them."""

    def __init__(
        self, tensors: Mapping[str, Tensor], reference: Mapping[str, Tensor] | None
    ) -> None:
        self._tensors, self._reference = tensors, reference
        self.has_reference = reference is not None
        sets = (tensors, reference or {})
        stored = [weights.stored if isinstance(weights, Weights) else weights for weights in sets]
        self._memory = {_address(x) for weights in stored for x in weights.values()}

    def jobs(self, item: Reading | ProductReading) -> dict[str, Matrix]:
        """Return the matrix or product of a reading by name, and its change."""
        parameters = {reading.parameter for reading in _readings(item)}
        now = _read(item, self._tensors)
        jobs: dict[str, Matrix] = {item.name: now}
        is_part = isinstance(item, Reading) and item.part_of
        if self._reference is not None and not is_part and parameters <= self._reference.keys():
            jobs[change_name(item.name)] = Change(now, _read(item, self._reference))
        return jobs

    def copied(self, jobs: Mapping[str, Matrix]) -> int:
        """Number of entries of these matrices that are copies, and no views of the tensors."""
        factors = [f for name, job in jobs.items() for fs in now_and_before(name, job) for f in fs]
        return sum(f.numel() for f in factors if _address(f) not in self._memory)


def _readings(item: Reading | ProductReading) -> tuple[Reading, ...]:
    return (item,) if isinstance(item, Reading) else item.readings


def _read(item: Reading | ProductReading, tensors: Mapping[str, Tensor]) -> Tensor | Product:
    if isinstance(item, Reading):
        return item.view(tensors[item.parameter]).W
    return item.product(tensors)


def _address(tensor: Tensor) -> int:
    """Address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def _matrices(
    plan: Plan, weights: _Weights, solve: Solve
) -> tuple[list[Spectrum], list[Spectrum], dict[str, Svd]]:
    # Query heads that share a key head name the same matrix; it is decomposed under one name.
    names: dict[Reading, str] = {}
    first_name = {r.name: names.setdefault(replace(r, name=""), r.name) for r in plan.readings}
    unique = [reading for reading in plan.readings if first_name[reading.name] == reading.name]
    sides = _sides(plan, first_name)
    paired = {first_name[name] for pair in plan.pairs for name in (pair.earlier, pair.later)}
    ranks = {name: plan.top for name in paired}
    for name, rank in plan.directions.items():
        ranks[first_name[name]] = max(rank, ranks.get(first_name[name], 0))

    def size(item: tuple[Reading, dict[str, Matrix]]) -> int:
        reading, jobs = item
        wanted = max(ranks.get(reading.name, 0), plan.leading or 0)
        directions = min(wanted, reading.m, reading.n) * (len(jobs) if plan.leading else 1)
        return weights.copied(jobs) + directions * (reading.m + reading.n)

    numbers: dict[str, Any] = {}
    vectors: dict[str, Svd] = {}
    ordered = sorted(unique, key=lambda reading: reading.m * reading.n, reverse=True)
    for portion in cut(((r, weights.jobs(r)) for r in ordered), size=size):
        jobs = {name: job for _, jobs in portion for name, job in jobs.items()}
        wanted = {r.name: ranks[r.name] for r, _ in portion if r.name in ranks}
        results = solve(jobs, ranks=wanted)
        numbers |= {name: numbers_of(result, plan) for name, result in results.items()}
        vectors |= _kept({name: results[name] for name in wanted}, sides)
    spectra = spectra_of(numbers, plan)
    order = [first_name[reading.name] for reading in plan.readings]
    changes = [spectra.get(change_name(name), MISSING) for name in order]
    by_name = {name: vectors[first] for name, first in first_name.items() if first in vectors}
    return [spectra[name] for name in order], changes, by_name


def _sides(plan: Plan, first_name: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which sides of each matrix are read: "out" (U), "in" (V)."""
    sides: dict[str, set[str]] = {}
    for pair in plan.pairs:
        sides.setdefault(first_name[pair.earlier], set()).add(pair.earlier_side)
        sides.setdefault(first_name[pair.later], set()).add(pair.later_side)
    shapes = {reading.name: (reading.m, reading.n) for reading in plan.readings}
    for name in plan.directions:
        m, n = shapes[name]
        sides.setdefault(first_name[name], set()).add("out" if m <= n else "in")
    return sides


def _kept(results: Mapping[str, Any], sides: Mapping[str, set[str]]) -> dict[str, Svd]:
    """Return the sides that are read; the memory of the others, now NaN, is free again."""
    absent: dict[Any, Tensor] = {}
    vectors = {}
    for name, result in results.items():
        device = result.S.device
        if device not in absent:
            absent[device] = result.S.new_full((), math.nan)
        U = result.U if "out" in sides[name] else absent[device].expand_as(result.U)
        Vh = result.Vh if "in" in sides[name] else absent[device].expand_as(result.Vh)
        vectors[name] = Svd(U, result.S, Vh)
    return vectors


def _short_side(svd: Svd, rank: int) -> Tensor:
    short = svd.U if svd.U.shape[0] <= svd.Vh.shape[1] else svd.Vh.mT
    return short[:, :rank].clone()  # a view would hold, and send, all directions


def _products(plan: Plan, weights: _Weights, solve: Solve) -> dict[str, np.ndarray]:
    numbers: dict[str, Any] = {}
    ordered = sorted(plan.products, key=change_size, reverse=True)
    for portion in cut(map(weights.jobs, ordered), size=weights.copied):
        jobs = {name: job for jobs in portion for name, job in jobs.items()}
        numbers |= {name: numbers_of(svd, plan) for name, svd in solve(jobs).items()}
    spectra = spectra_of(numbers, plan)
    names = [reading.name for reading in plan.products]
    values = values_of([spectra[n] for n in names], plan, prefix="product_")
    if weights.has_reference:
        changes = [spectra.get(change_name(n), MISSING) for n in names]
        values |= values_of(changes, plan, prefix="product_change_")
    return values


def change_size(product: ProductReading) -> int:
    return 2 * (product.m + product.n) * product.r


def _alignments(plan: Plan, vectors: Mapping[str, Svd]) -> dict[str, np.ndarray]:
    diagonals = np.full((2, len(plan.pairs), plan.top), math.nan)
    backgrounds = np.full((2, len(plan.pairs)), math.nan)
    for rows, overlaps in measure_overlaps(plan.pairs, vectors, top=plan.top):
        raw, normalized, *means = at_host(overlaps)
        diagonals[:, rows, : raw.shape[1]] = raw, normalized
        backgrounds[:, rows] = means
    return {
        "alignment": diagonals[0],
        "alignment_background": backgrounds[0],
        "alignment_normalized": diagonals[1],
        "alignment_normalized_background": backgrounds[1],
    }


def _status(S: np.ndarray) -> int:
    if not np.isfinite(S).all():
        return STATUS.index("failed")
    return STATUS.index("ok" if S.any() else "zero")
