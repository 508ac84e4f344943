"""Layout of snapshots in the store: coordinates and variables."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rankscope.matrices import ProductReading, Reading
from rankscope.overlaps import chance_overlap
from rankscope.pairs import Pair
from rankscope.snapshot.planning import Plan, length, meeting
from rankscope.snapshot.spectrum import variables_of
from rankscope.store import Variable

Coordinates = dict[str, tuple[tuple[str, ...], np.ndarray]]

STATUS = ("ok", "zero", "failed")
STATUS_FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": " ".join(STATUS)}


def layout(
    plan: Plan, dtypes: Mapping[str, torch.dtype], *, change: bool
) -> tuple[Coordinates, dict[str, Variable]]:
    """Return the coordinates and variables of the store for this plan.

    Spectra are stored in float32, whose rounding is below that of the weights, and in float64 if
    any weight is.
    """
    real = np.dtype("float64" if torch.float64 in dtypes.values() else "float32")
    coords = {**_matrix_coords(plan.readings, dtypes), "k": (("k",), np.arange(plan.k))}
    if plan.leading is not None:
        coords["r"] = (("r",), np.arange(1, plan.leading + 1))
    variables = {
        **variables_of(plan, "matrix", real),
        "status": Variable(("step", "matrix"), np.dtype("int8"), fill=2, attrs=STATUS_FLAGS),
    }
    if change:
        variables |= variables_of(plan, "matrix", real, prefix="change_")
    if plan.products:
        coords |= _product_coords(plan.products)
        variables |= variables_of(plan, "product", real, prefix="product_")
        if change:
            variables |= variables_of(plan, "product", real, prefix="product_change_")
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
    entries = meeting(pair, by_name, "earlier")
    lengths = [length(pair, by_name, end) for end in ("earlier", "later")]
    return chance_overlap(entries) * entries / math.sqrt(math.prod(lengths))


def _names(dim: str, names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    return (dim,), np.array(names, dtype=object)
