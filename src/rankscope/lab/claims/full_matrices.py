"""Claim B6 of boix2023: with full matrices singular values appear one after another."""

import torch
import xarray as xr

from rankscope.lab.experiment import Results
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge
from rankscope.theory import Rises, rise_times

PRODUCTS = {"vo": "V-O", "kq": "K-Q"}
FIRST = 3


def values_rise_in_turn(results: Results) -> Verdict:
    """B6. With full matrices, singular values appear one after another.

    Yes: half-rise times of at least the first 3 singular values of both products lie further apart
    than their 10-90% widths. Each teacher, alpha and product is judged as a network of its own.
    Where the next value has not risen and settled yet, nothing is told.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    for name in [name for name in results if name.endswith("/full")]:
        for product, shown in PRODUCTS.items():
            network = f"{name.removesuffix('/full')}, {shown}"
            outcomes[network] = {}
            for seed, ds in results[name].items():
                rises = rises_of(ds, product)
                outcomes[network][seed] = (rises.separated, _in_turn(rises))
                rows.append((network, seed, *_half_rises(rises)))
    columns = ("network", "seed", *(f"value {k}" for k in range(1, FIRST + 2)))
    return judge(
        "B6",
        "with full matrices, singular values appear one after another",
        outcomes,
        bound=f">= {FIRST}",
        quantity="first singular values whose rises do not overlap",
        tables=[Table(columns, tuple(rows), "half-rise time (10-90% width) of the first values")],
    )


def rises_of(ds: xr.Dataset, product: str) -> Rises:
    """When each singular value of one product rose."""
    values = ds["singular_values"].sel(product=product).transpose("time", "k").to_numpy()
    return rise_times(torch.tensor(ds["time"].to_numpy()), torch.tensor(values))


def rise_dataset(ds: xr.Dataset) -> xr.Dataset:
    """half_rise, rise_10 and rise_90(product, k), as `figures.singular_value_rises` draws them."""
    found = {product: rises_of(ds, product) for product in ds["product"].to_numpy()}
    columns = {"half_rise": "half", "rise_10": "start", "rise_90": "end"}
    return xr.Dataset(
        {
            name: (("product", "k"), torch.stack([getattr(r, of) for r in found.values()]).numpy())
            for name, of in columns.items()
        },
        coords={"product": list(found)},
    )


def _in_turn(rises: Rises) -> bool | None:
    if rises.separated >= FIRST:
        return True
    return None if bool(rises.half[rises.separated].isnan()) else False


def _half_rises(rises: Rises) -> list[str]:
    pairs = zip(rises.half[: FIRST + 1].tolist(), rises.width[: FIRST + 1].tolist(), strict=True)
    return ["-" if half != half else f"{half:.3f} ({width:.3f})" for half, width in pairs]
