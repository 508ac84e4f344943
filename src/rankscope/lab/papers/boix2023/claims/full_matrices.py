"""Claim B6: with full matrices singular values appear one after another."""

from collections.abc import Iterator, Mapping

import torch
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.papers.boix2023.runs import KINDS
from rankscope.theory import Rises, rise_times

FIRST = 3


def measure_rises(runs: Runs) -> Iterator[Measured]:
    """Ask that the first 3 singular values of a product rise in turn.

    Their half-rise times have to lie further apart than their 10-90% widths. Both products of each
    network are judged. If too few have risen in turn and the next one has not risen and settled
    yet, the seed cannot tell.
    """
    for key in runs:
        for product, part in KINDS.items():
            for seed, ds in runs[key].items():
                rises = rises_of(ds, product)
                measured = Measured(rises.separated, _in_turn(rises), rows=(_half_rises(rises),))
                yield measured.at(key, seed, part=part)


B6 = Rule(
    claim="B6",
    sentence="with full matrices, singular values appear in turn",
    quantity="first singular values whose rises do not overlap",
    bound=f">= {FIRST}",
    measure=measure_rises,
    needs=runs_of(kind="full"),
    table="half-rise times and 10-90% widths of the first values",
)


def rises_of(ds: xr.Dataset, product: str) -> Rises:
    """Return when each singular value of one product rose."""
    values = ds["singular_values"].sel(product=product).transpose("time", "k").to_numpy()
    return rise_times(torch.tensor(ds["time"].to_numpy()), torch.tensor(values))


def rise_dataset(ds: xr.Dataset) -> xr.Dataset:
    """Return half_rise, rise_10 and rise_90(product, k), as `singular_value_rises` draws them."""
    rises = {product: rises_of(ds, product) for product in ds["product"].to_numpy()}
    times = {
        "half_rise": [rise.half for rise in rises.values()],
        "rise_10": [rise.start for rise in rises.values()],
        "rise_90": [rise.end for rise in rises.values()],
    }
    return xr.Dataset(
        {name: (("product", "k"), torch.stack(values).numpy()) for name, values in times.items()},
        coords={"product": list(rises)},
    )


def _in_turn(rises: Rises) -> bool | None:
    if rises.separated >= FIRST:
        return True
    return None if bool(rises.half[rises.separated].isnan()) else False


def _half_rises(rises: Rises) -> Mapping[str, float]:
    columns = {"half-rise": rises.half.tolist(), "width": rises.width.tolist()}
    first = range(min(FIRST + 1, len(rises.half)))
    return {f"{name} {k + 1}": times[k] for k in first for name, times in columns.items()}
