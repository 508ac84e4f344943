"""Snapshots of a model that has lost some of the tensors it had when its run began."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from torch import Tensor

from rankscope import snapshot
from rankscope.spectra import Carried
from rankscope.tracker.merging import Merging


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
    rows = Merging(plan)
    rows.add(part.values, possible)
    return part._replace(values=rows.values)


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
