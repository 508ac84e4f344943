"""Snapshots of a network: every spectrum, change, product and overlap at one moment.

A `Plan` says what to measure, `measure` measures it, `layout` says how the result is stored. The
tracker uses them while a network trains; they also work on weights from elsewhere.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from rankscope.matrices import (
    Effective,
    Product,
    ProductReading,
    Reading,
    View,
    Views,
    product_change,
)
from rankscope.overlaps import Overlap, chance_overlap
from rankscope.overlaps import measure as measure_overlap
from rankscope.pairs import Cut, Pair
from rankscope.spectra import Carried, Svd, decompose
from rankscope.store import Variable

Item = TypeVar("Item", Reading, ProductReading)
Solve = Callable[..., dict[str, Svd]]
Coordinates = dict[str, tuple[tuple[str, ...], np.ndarray]]

STATUS = ("ok", "zero", "failed")
STATUS_FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": " ".join(STATUS)}

# Matrices are decomposed in portions of this many float64 numbers (512 MiB), which bounds memory by
# a few portions for models of any size.
PORTION = 1 << 26


@dataclass(frozen=True)
class Plan:
    """Matrices (whole ones, and the parts that pairs need), products and pairs to measure.

    top: number of leading directions that enter an overlap.
    directions: number of leading directions to return for each named matrix, on its shorter side,
        beside the stored values.
    effective: those of the tensors that are computed from stored ones.
    frozen: names of tensors that do not train, measured again only if their content has changed.
    """

    readings: tuple[Reading, ...]
    products: tuple[ProductReading, ...]
    pairs: tuple[Pair, ...]
    top: int = 100
    directions: Mapping[str, int] = field(default_factory=dict)
    effective: tuple[Effective, ...] = ()
    frozen: frozenset[str] = frozenset()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the tensors needed, each once."""
        names = [reading.parameter for reading in self.readings]
        for product in self.products:
            names += [reading.parameter for reading in product.readings]
        return tuple(dict.fromkeys(names))

    @property
    def sources(self) -> dict[str, set[str]]:
        """Names of the tensors behind each matrix, product and change."""
        sources = {reading.name: {reading.parameter} for reading in self.readings}
        sources |= {p.name: {r.parameter for r in p.readings} for p in self.products}
        return sources | {_change_name(name): names for name, names in sources.items()}

    @property
    def k(self) -> int:
        """Length of the longest spectrum."""
        widths = [min(reading.m, reading.n) for reading in self.readings]
        return max(widths + [_change_rank(product) for product in self.products], default=0)


class Snapshot(NamedTuple):
    """Result of `measure`.

    values: stored variables by name.
    failed: names of what could not be decomposed: "fc", "change of fc".
    directions: the directions that the plan asks for, as columns: of U if m <= n, else of V.
    """

    values: dict[str, np.ndarray]
    failed: tuple[str, ...]
    directions: dict[str, Tensor]


def plan(
    chosen: Views,
    *,
    pairs: Sequence[Pair],
    products: bool,
    top: int = 100,
    directions: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan for the chosen matrices, their products, and the parts that `pairs` name."""
    readings = {reading.name: reading for reading in chosen.manifest.readings}
    _check_pairs(pairs, readings)
    if unknown := [name for name in directions if name not in chosen.readings]:
        raise ValueError(f"directions are asked of {unknown[0]!r}, which is not among the matrices")
    names = {*chosen.readings, *(n for pair in pairs for n in (pair.earlier, pair.later))}
    parameters = {reading.parameter for reading in chosen.readings.values()}
    measured = Plan(
        readings=tuple(reading for name, reading in readings.items() if name in names),
        products=tuple(
            product
            for product in (chosen.manifest.products if products else ())
            if product.kind == "lora"
            or {reading.parameter for reading in product.readings} <= parameters
        ),
        pairs=tuple(pairs),
        top=top,
        directions=dict(directions),
    )
    effective = tuple(w for w in chosen.manifest.effective if w.parameter in measured.parameters)
    frozen = frozenset(name for name in measured.parameters if not chosen.tensors.train(name))
    return replace(measured, effective=effective, frozen=frozen)


def _check_pairs(pairs: Sequence[Pair], readings: Mapping[str, Reading]) -> None:
    for pair in pairs:
        for name in (pair.earlier, pair.later):
            if name not in readings:
                raise ValueError(
                    f"pair {pair.name!r} names the matrix {name!r}, which the model does not have; "
                    "rankscope.views(model, parts=True) lists those it has"
                )
        earlier, later = (_meeting(pair, readings, end) for end in ("earlier", "later"))
        if earlier != later:
            raise ValueError(
                f"pair {pair.name!r}: {earlier} entries of the earlier vectors meet {later} of the "
                "later; give it an earlier_cut or later_cut that makes them equal"
            )
    counts = Counter(pair.name for pair in pairs)
    if duplicates := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"two pairs are named {duplicates[0]!r}; give them different labels")


def _meeting(pair: Pair, readings: Mapping[str, Reading], end: str) -> int:
    """Number of entries of the vectors at one end that enter the overlap."""
    cut: Cut | None = getattr(pair, f"{end}_cut")
    return _length(pair, readings, end) if cut is None else cut.size


def _length(pair: Pair, readings: Mapping[str, Reading], end: str) -> int:
    """Number of entries of the vectors at one end."""
    reading = readings[getattr(pair, end)]
    return reading.m if getattr(pair, f"{end}_side") == "out" else reading.n


def layout(
    plan: Plan, dtypes: Mapping[str, torch.dtype], *, change: bool
) -> tuple[Coordinates, dict[str, Variable]]:
    """Return the coordinates and variables of the store for this plan.

    Spectra are stored in float32, whose rounding is below that of the weights, and in float64 if
    any weight is.
    """
    real = np.dtype("float64" if torch.float64 in dtypes.values() else "float32")
    coords = {**_matrix_coords(plan.readings, dtypes), "k": (("k",), np.arange(plan.k))}
    variables = {
        "singular_values": Variable(("step", "matrix", "k"), real),
        "status": Variable(("step", "matrix"), np.dtype("int8"), fill=2, attrs=STATUS_FLAGS),
    }
    if change:
        variables["change_singular_values"] = Variable(("step", "matrix", "k"), real)
    if plan.products:
        coords |= _product_coords(plan.products)
        variables["product_singular_values"] = Variable(("step", "product", "k"), real)
        if change:
            variables["product_change_singular_values"] = Variable(("step", "product", "k"), real)
    if plan.pairs:
        coords |= {**_pair_coords(plan), "i": (("i",), np.arange(1, plan.top + 1))}
        for name in ("alignment", "alignment_normalized"):
            variables[name] = Variable(("step", "pair", "i"), np.dtype("float32"))
            variables[f"{name}_background"] = Variable(("step", "pair"), np.dtype("float32"))
    return coords, variables


def _matrix_coords(readings: Sequence[Reading], dtypes: Mapping[str, torch.dtype]) -> Coordinates:
    names = [str(dtypes[r.parameter]).removeprefix("torch.") for r in readings]
    return {
        "matrix": _names("matrix", [r.name for r in readings]),
        "m": (("matrix",), np.array([r.m for r in readings])),
        "n": (("matrix",), np.array([r.n for r in readings])),
        "kind": _names("matrix", [r.kind for r in readings]),
        "part_of": _names("matrix", [r.part_of or "" for r in readings]),
        "dtype": _names("matrix", names),
    }


def _product_coords(products: Sequence[ProductReading]) -> Coordinates:
    return {
        "product": _names("product", [p.name for p in products]),
        "product_kind": _names("product", [p.kind for p in products]),
        "product_m": (("product",), np.array([p.m for p in products])),
        "product_n": (("product",), np.array([p.n for p in products])),
        "product_r": (("product",), np.array([p.r for p in products])),
    }


def _pair_coords(plan: Plan) -> Coordinates:
    pairs = plan.pairs
    return {
        "pair": _names("pair", [p.name for p in pairs]),
        "pair_kind": _names("pair", [p.kind for p in pairs]),
        "earlier": _names("pair", [p.earlier for p in pairs]),
        "later": _names("pair", [p.later for p in pairs]),
        "chance": (("pair",), np.array([_chance(p, plan.readings) for p in pairs])),
    }


def _chance(pair: Pair, readings: Sequence[Reading]) -> float:
    """Return the mean raw overlap of random directions, cut to the entries that meet.

    d of D and d of D' entries meet. The cut vectors have lengths of about sqrt(d / D) and
    sqrt(d / D'), and overlap as unit vectors in d dimensions do.
    """
    by_name = {reading.name: reading for reading in readings}
    meeting = _meeting(pair, by_name, "earlier")
    lengths = [_length(pair, by_name, end) for end in ("earlier", "later")]
    return chance_overlap(meeting) * meeting / math.sqrt(math.prod(lengths))


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
    solve: Solve = partial(decompose, threads=threads, on_failure=failed.extend)
    if carried is not None and plan.frozen:
        solve = carried.around(solve, tensors, frozen=plan.frozen, sources=plan.sources)
    spectra, changes, vectors = _matrices(plan, tensors, reference, solve)
    values = {
        "singular_values": _padded(spectra, plan.k),
        "status": np.array([_status(S) for S in spectra], dtype=np.int8),
    }
    if reference is not None:
        values["change_singular_values"] = _padded(changes, plan.k)
    if plan.products:
        values |= _products(plan, tensors, reference, solve)
    if plan.pairs:
        values |= _alignments(plan, vectors)
    directions = {name: _short_side(vectors[name], rank) for name, rank in plan.directions.items()}
    return Snapshot(values, tuple(failed), directions)


def _matrices(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    solve: Solve,
) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, Svd]]:
    # Query heads that share a key head name the same matrix; it is decomposed under one name.
    names: dict[Reading, str] = {}
    first_name = {r.name: names.setdefault(replace(r, name=""), r.name) for r in plan.readings}
    paired = {first_name[name] for pair in plan.pairs for name in (pair.earlier, pair.later)}
    spectra: dict[str, np.ndarray] = {}
    changes: dict[str, np.ndarray] = {}
    vectors: dict[str, Svd] = {}
    unique = [reading for reading in plan.readings if first_name[reading.name] == reading.name]
    for portion in _portions(unique, size=lambda reading: reading.m * reading.n):
        jobs: dict[str, Tensor | View | Product] = {}
        for reading in portion:
            W = reading.view(tensors[reading.parameter]).W
            jobs[reading.name] = W
            if reference is None or reading.part_of or reading.parameter not in reference:
                continue
            difference = _difference(W, reading.view(reference[reading.parameter]).W)
            if difference.any():
                jobs[_change_name(reading.name)] = difference
            else:  # at the first snapshot, and of frozen weights
                changes[reading.name] = np.zeros(min(difference.shape))
        ranks = {reading.name: plan.top for reading in portion if reading.name in paired}
        for reading in portion:
            if (rank := plan.directions.get(reading.name, 0)) > ranks.get(reading.name, 0):
                ranks[reading.name] = rank
        svds = solve(jobs, ranks=ranks)
        for reading in portion:
            spectra[reading.name] = _array(svds[reading.name].S)
            change = svds.get(_change_name(reading.name))
            changes.setdefault(reading.name, np.empty(0) if change is None else _array(change.S))
        vectors |= {name: svds[name] for name in ranks}
    order = [first_name[reading.name] for reading in plan.readings]
    by_name = {name: vectors[first] for name, first in first_name.items() if first in vectors}
    return [spectra[name] for name in order], [changes[name] for name in order], by_name


def _short_side(svd: Svd, rank: int) -> Tensor:
    short = svd.U if svd.U.shape[0] <= svd.Vh.shape[1] else svd.Vh.mT
    return short[:, :rank].clone()  # a view would hold, and send, all directions


def _difference(W: Tensor, W0: Tensor) -> Tensor:
    """W - W0, rounded once to float32 or better, which is finer than the weights' own rounding."""
    dtype = torch.promote_types(W.dtype, torch.float32)
    return W.to(dtype) - W0.to(dtype)


def _products(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    solve: Solve,
) -> dict[str, np.ndarray]:
    spectra: dict[str, np.ndarray] = {}
    for portion in _portions(plan.products, size=_change_size):
        jobs: dict[str, Tensor | View | Product] = {}
        for reading in portion:
            now = reading.product(tensors)
            jobs[reading.name] = now
            factors = {reading.left.parameter, reading.right.parameter}
            if reference is None or not factors <= reference.keys():
                continue
            before = reading.product(reference)
            if _same(now, before):
                spectra[_change_name(reading.name)] = np.zeros(_change_rank(reading))
            else:
                jobs[_change_name(reading.name)] = product_change(now, before)
        spectra |= {name: _array(svd.S) for name, svd in solve(jobs).items()}
    names = [reading.name for reading in plan.products]
    values = {"product_singular_values": _padded([spectra[n] for n in names], plan.k)}
    if reference is not None:
        changes = [spectra.get(_change_name(n), np.empty(0)) for n in names]
        values["product_change_singular_values"] = _padded(changes, plan.k)
    return values


def _same(now: Product, before: Product) -> bool:
    """Return whether both products have equal, finite factors."""
    differences = (_difference(now.left, before.left), _difference(now.right, before.right))
    return not any(difference.any() for difference in differences)


def _change_size(product: ProductReading) -> int:
    return 2 * (product.m + product.n) * product.r


def _alignments(plan: Plan, vectors: Mapping[str, Svd]) -> dict[str, np.ndarray]:
    overlaps: list[Overlap] = [measure_overlap(pair, vectors, top=plan.top) for pair in plan.pairs]
    return {
        "alignment": _padded([_array(o.diagonal) for o in overlaps], plan.top),
        "alignment_background": np.array([float(o.background) for o in overlaps]),
        "alignment_normalized": _padded(
            [_array(o.normalized_diagonal) for o in overlaps], plan.top
        ),
        "alignment_normalized_background": np.array(
            [float(o.normalized_background) for o in overlaps]
        ),
    }


def _portions(items: Sequence[Item], *, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items, large ones first, in lists of at most PORTION numbers."""
    portion: list[Item] = []
    total = 0
    for item in sorted(items, key=size, reverse=True):
        if portion and total + size(item) > PORTION:
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size(item)
    if portion:
        yield portion


def _change_name(name: str) -> str:
    return f"change of {name}"


def _change_rank(product: ProductReading) -> int:
    return min(product.m, product.n, 2 * product.r)


def _status(S: np.ndarray) -> int:
    if not np.isfinite(S).all():
        return STATUS.index("failed")
    return STATUS.index("ok" if S.any() else "zero")


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def _padded(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    padded = np.full((len(rows), width), math.nan)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded


def _names(dim: str, names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    return (dim,), np.array(names, dtype=object)
