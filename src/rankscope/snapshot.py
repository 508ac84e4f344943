"""One look at a network: every spectrum, change, product and overlap at one moment.

A `Plan` says what is looked at, `measure` looks, `layout` says how the result is stored. The
tracker uses them while a network trains; whoever has its weights in another way can use them too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankscope.matrices import Manifest, Product, ProductReading, Reading, View, product_change
from rankscope.overlaps import Overlap, chance_overlap
from rankscope.overlaps import measure as measure_overlap
from rankscope.pairs import Pair
from rankscope.spectra import Svd, decompose
from rankscope.store import Variable

STATUS = ("ok", "zero", "failed")
STATUS_FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": " ".join(STATUS)}

# Matrices are decomposed in portions of this many float64 numbers (512 MiB), so that memory stays
# bounded by a few portions whatever the size of the model.
PORTION = 1 << 26


@dataclass(frozen=True)
class Plan:
    """What a snapshot measures: matrices (wholes, and the parts pairs need), products, pairs.

    `top` is how many leading directions enter an overlap.
    """

    readings: tuple[Reading, ...]
    products: tuple[ProductReading, ...]
    pairs: tuple[Pair, ...]
    top: int = 100

    @property
    def parameters(self) -> tuple[str, ...]:
        """The tensors needed, each once."""
        names = [reading.parameter for reading in self.readings]
        for product in self.products:
            names += [product.left.parameter, product.right.parameter]
        return tuple(dict.fromkeys(names))

    @property
    def k(self) -> int:
        """The longest spectrum."""
        widths = [min(reading.m, reading.n) for reading in self.readings]
        return max(widths + [_change_rank(product) for product in self.products], default=0)


def plan(
    manifest: Manifest,
    *,
    matrices: Sequence[str],
    pairs: Sequence[Pair],
    products: bool,
    top: int = 100,
) -> Plan:
    """The plan for the named matrices and the parts that `pairs` name besides."""
    known = {reading.name: reading for reading in manifest.readings}
    for pair in pairs:
        for name in (pair.earlier, pair.later):
            if name not in known:
                raise ValueError(
                    f"pair {pair.name!r} names the matrix {name!r}, which the model does not have; "
                    "rankscope.views(model, parts=True) lists those it has"
                )
    names = dict.fromkeys([*matrices, *(n for pair in pairs for n in (pair.earlier, pair.later))])
    order = {name: position for position, name in enumerate(known)}
    return Plan(
        readings=tuple(known[name] for name in sorted(names, key=order.__getitem__)),
        products=manifest.products if products else (),
        pairs=tuple(pairs),
        top=top,
    )


def layout(
    plan: Plan, dtypes: Mapping[str, torch.dtype], *, change: bool
) -> tuple[dict[str, tuple[tuple[str, ...], np.ndarray]], dict[str, Variable]]:
    """Coordinates and variables of the store for this plan.

    Spectra are kept in float32, which is below the rounding of weights stored in float32 or less,
    and in float64 when any weight is.
    """
    real = np.dtype("float64" if torch.float64 in dtypes.values() else "float32")
    readings, pairs, products = plan.readings, plan.pairs, plan.products
    coords: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "matrix": _names("matrix", [r.name for r in readings]),
        "m": (("matrix",), np.array([r.m for r in readings])),
        "n": (("matrix",), np.array([r.n for r in readings])),
        "kind": _names("matrix", [r.kind for r in readings]),
        "part_of": _names("matrix", [r.part_of or "" for r in readings]),
        "dtype": _names(
            "matrix", [str(dtypes[r.parameter]).removeprefix("torch.") for r in readings]
        ),
        "k": (("k",), np.arange(plan.k)),
    }
    variables = {
        "singular_values": Variable(("step", "matrix", "k"), real),
        "status": Variable(("step", "matrix"), np.dtype("int8"), fill=2, attrs=STATUS_FLAGS),
    }
    if change:
        variables["change_singular_values"] = Variable(("step", "matrix", "k"), real)
    if products:
        coords |= {
            "product": _names("product", [p.name for p in products]),
            "product_kind": _names("product", [p.kind for p in products]),
            "product_m": (("product",), np.array([p.left.m for p in products])),
            "product_n": (("product",), np.array([p.right.m for p in products])),
            "product_r": (("product",), np.array([p.left.n for p in products])),
        }
        variables["product_singular_values"] = Variable(("step", "product", "k"), real)
        if change:
            variables["product_change_singular_values"] = Variable(("step", "product", "k"), real)
    if pairs:
        coords |= {
            "pair": _names("pair", [p.name for p in pairs]),
            "pair_kind": _names("pair", [p.kind for p in pairs]),
            "earlier": _names("pair", [p.earlier for p in pairs]),
            "later": _names("pair", [p.later for p in pairs]),
            "chance": (("pair",), np.array([_chance(p, readings) for p in pairs])),
            "i": (("i",), np.arange(1, plan.top + 1)),
        }
        for name in ("alignment", "alignment_normalized"):
            variables[name] = Variable(("step", "pair", "i"), np.dtype("float32"))
            variables[f"{name}_background"] = Variable(("step", "pair"), np.dtype("float32"))
    return coords, variables


def _chance(pair: Pair, readings: Sequence[Reading]) -> float:
    """The mean raw overlap of random directions, of which only the entries that meet count.

    d of D and d of D' entries meet: each part has length about sqrt(d / D), and the parts overlap
    as unit vectors in d dimensions do.
    """
    of = {reading.name: reading for reading in readings}
    sizes = []
    for name, side in ((pair.earlier, pair.earlier_side), (pair.later, pair.later_side)):
        sizes.append(of[name].m if side == "out" else of[name].n)
    cut = pair.earlier_cut
    meeting = sizes[0] if cut is None else cut.size
    return chance_overlap(meeting) * meeting / math.sqrt(sizes[0] * sizes[1])


def measure(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None = None,
    *,
    threads: int | None = None,
) -> dict[str, np.ndarray]:
    """Every stored variable of one snapshot; each matrix is decomposed once.

    Changes are those of whole matrices; parts are there for the overlaps they enter.
    """
    spectra, changes, vectors = _matrices(plan, tensors, reference, threads)
    values = {
        "singular_values": _padded(spectra, plan.k),
        "status": np.array([_status(S) for S in spectra], dtype=np.int8),
    }
    if reference is not None:
        values["change_singular_values"] = _padded(changes, plan.k)
    if plan.products:
        values |= _products(plan, tensors, reference, threads)
    if plan.pairs:
        values |= _alignments(plan, vectors)
    return values


def _matrices(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    threads: int | None,
) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, Svd]]:
    paired = {name for pair in plan.pairs for name in (pair.earlier, pair.later)}
    spectra: dict[str, np.ndarray] = {}
    changes: dict[str, np.ndarray] = {}
    vectors: dict[str, Svd] = {}
    for portion in _portions(plan.readings):
        jobs: dict[str, Tensor | View | Product] = {}
        for reading in portion:
            W = reading.view(tensors[reading.parameter]).W
            jobs[reading.name] = W
            if reference is not None and reading.part_of is None:
                W0 = reading.view(reference[reading.parameter]).W
                jobs[_change_name(reading.name)] = _difference(W, W0)
        ranks = {reading.name: plan.top for reading in portion if reading.name in paired}
        found = decompose(jobs, ranks=ranks, threads=threads, on_failure=_status_says_it)
        for reading in portion:
            spectra[reading.name] = _array(found[reading.name].S)
            change = found.get(_change_name(reading.name))
            changes[reading.name] = np.empty(0) if change is None else _array(change.S)
        vectors |= {name: found[name] for name in ranks}
    order = [reading.name for reading in plan.readings]
    return [spectra[name] for name in order], [changes[name] for name in order], vectors


def _difference(W: Tensor, W0: Tensor) -> Tensor:
    """W - W0, rounded once, to float32 or better: less than the weights were rounded themselves."""
    at_least = torch.promote_types(W.dtype, torch.float32)
    return W.to(at_least) - W0.to(at_least)


def _products(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    threads: int | None,
) -> dict[str, np.ndarray]:
    jobs: dict[str, Tensor | View | Product] = {}
    for reading in plan.products:
        product = reading.product(tensors)
        jobs[reading.name] = product
        if reference is not None:
            jobs[_change_name(reading.name)] = product_change(product, reading.product(reference))
    found = decompose(jobs, threads=threads, on_failure=_status_says_it)
    names = [reading.name for reading in plan.products]
    values = {"product_singular_values": _padded([_array(found[n].S) for n in names], plan.k)}
    if reference is not None:
        spectra = [_array(found[_change_name(n)].S) for n in names]
        values["product_change_singular_values"] = _padded(spectra, plan.k)
    return values


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


def _portions(readings: Sequence[Reading]) -> Iterator[list[Reading]]:
    portion: list[Reading] = []
    size = 0
    for reading in sorted(readings, key=lambda r: (min(r.m, r.n), max(r.m, r.n)), reverse=True):
        if portion and size + reading.m * reading.n > PORTION:
            yield portion
            portion, size = [], 0
        portion.append(reading)
        size += reading.m * reading.n
    if portion:
        yield portion


def _status_says_it(names: Sequence[str]) -> None:
    """A snapshot stores which matrices failed; whoever takes it decides how to tell."""


def _change_name(name: str) -> str:
    return f"change of {name}"


def _change_rank(product: ProductReading) -> int:
    return min(product.left.m, product.right.m, 2 * product.left.n)


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
