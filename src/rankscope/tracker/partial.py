"""Snapshots of a model that has lost some of the tensors it had when its run began."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from rankscope import snapshot
from rankscope.spectra import Carried


def measure(
    plan: snapshot.Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    *,
    threads: int,
    carried: Carried | None = None,
) -> snapshot.Snapshot:
    """Measure what the given tensors allow.

    Values that need a tensor which is not given are NaN. The status of such a matrix is "failed".
    """
    possible = restricted(plan, tensors)
    part = snapshot.measure(possible, tensors, reference, threads=threads, carried=carried)
    if possible is plan:
        return part
    return part._replace(values=_spread_out(part.values, possible, plan))


def restricted(plan: snapshot.Plan, parameters: Collection[str]) -> snapshot.Plan:
    """Return the part of a plan that needs no other tensors than `parameters`."""
    if set(plan.parameters) <= set(parameters):
        return plan
    readings = tuple(r for r in plan.readings if r.parameter in parameters)
    names = {reading.name for reading in readings}
    return replace(
        plan,
        readings=readings,
        products=tuple(
            product
            for product in plan.products
            if {reading.parameter for reading in product.readings} <= set(parameters)
        ),
        pairs=tuple(pair for pair in plan.pairs if {pair.earlier, pair.later} <= names),
        directions={name: rank for name, rank in plan.directions.items() if name in names},
        frozen=plan.frozen & set(parameters),
    )


def _spread_out(
    values: Mapping[str, np.ndarray], part: snapshot.Plan, plan: snapshot.Plan
) -> dict[str, np.ndarray]:
    """Return the values measured for a part of a plan as rows of the whole plan."""
    spread: dict[str, np.ndarray] = {}
    for name, measured in values.items():
        kind = _kind(name)
        row_of = {item.name: row for row, item in enumerate(getattr(plan, kind))}
        rows = [row_of[item.name] for item in getattr(part, kind)]
        fill = snapshot.STATUS.index("failed") if name == "status" else math.nan
        if measured.ndim == 1:
            spread[name] = np.full(len(row_of), fill, measured.dtype)
            spread[name][rows] = measured
        else:
            width = plan.top if kind == "pairs" else plan.leading or plan.k
            spread[name] = np.full((len(row_of), width), fill, measured.dtype)
            spread[name][rows, : measured.shape[1]] = measured
    return spread


def _kind(variable: str) -> str:
    if variable.startswith("product_"):
        return "products"
    return "pairs" if variable.startswith("alignment") else "readings"
