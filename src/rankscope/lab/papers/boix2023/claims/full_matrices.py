"""Claim B6: with full matrices singular values appear one after another."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.runs import KINDS, Kind
from rankscope.lab.running.run_key import RunKey
from rankscope.theory import Rises, rise_times

FIRST = 3
FULL, LONG = "full", "long"
LOG10_ALPHAS = {"gaussian": (-8.0, -32.0)}  # that a teacher has to be run at


def full_heads(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the heads with full matrices, those that go on until K-Q values rise among them."""
    return [key for key in keys if key.kind in (FULL, LONG)]


def teacher_of(key: RunKey) -> str:
    """Return "gaussian" for the network "gaussian-1e-8"."""
    return key.network.partition("-")[0]


def measure_rises(runs: Runs) -> Iterator[Measured]:
    """Ask that the first 3 singular values of a product rise in turn, at the smallest alpha.

    Their half-rise times have to lie further apart than their 10-90% widths. As many have to do so
    as at larger alphas, so with the Gaussian teacher their number may not fall from 1e-8 to 1e-32.
    V-O is read in the runs that end after its rises, K-Q in the long ones if there are any.
    A seed cannot tell if one of its runs is missing or has fewer than 3 values of the product that
    rise, or if too few have risen in turn and the next one has not risen and settled by the end.
    """
    keys_by_teacher: dict[RunKey, list[RunKey]] = {}
    for key in runs:
        teacher = RunKey(teacher_of(key), experiment=key.experiment)
        keys_by_teacher.setdefault(teacher, []).append(key)
    for teacher, keys in keys_by_teacher.items():
        for product, part in KINDS.items():
            read = _read_in(keys, product)
            for seed in sorted({seed for key in read for seed in runs[key]}):
                datasets = [runs[key][seed] for key in read if seed in runs[key]]
                measured = _measured(datasets, product, LOG10_ALPHAS.get(teacher.network, ()))
                yield measured.at(teacher, seed, part=part)


def _read_in(keys: Sequence[RunKey], product: Kind) -> list[RunKey]:
    """Return the run of each network in which a product is read."""
    kind_by_network = dict.fromkeys((key.network for key in keys), FULL)
    if product == "kq":
        kind_by_network |= {key.network: LONG for key in keys if key.kind == LONG}
    return [key for key in keys if key.kind == kind_by_network[key.network]]


def _measured(
    datasets: Sequence[xr.Dataset], product: Kind, log10_alphas: Collection[float]
) -> Measured:
    """Measure one product of a teacher and seed.

    datasets: its runs. log10_alphas: alphas that it needs.
    """
    rises_by_alpha = {float(ds.attrs["log10_alpha"]): rises_of(ds, product) for ds in datasets}
    *larger, smallest = sorted(rises_by_alpha, reverse=True)
    rows = tuple(
        _row(log10_alpha, rises_by_alpha[log10_alpha]) for log10_alpha in (*larger, smallest)
    )
    all_run = rises_by_alpha.keys() >= set(log10_alphas)
    if not all_run or any(_risen(rises) < FIRST for rises in rises_by_alpha.values()):
        return Measured(rows=rows)
    least = max([FIRST, *(rises_by_alpha[log10_alpha].separated for log10_alpha in larger)])
    rises = rises_by_alpha[smallest]
    return Measured(rises.separated, _in_turn(rises, least), rows=rows)


def _row(log10_alpha: float, rises: Rises) -> Mapping[str, Cell]:
    counts: dict[str, Cell] = {"risen": _risen(rises), "in turn": rises.separated}
    return {"alpha": f"1e{log10_alpha:g}", **counts, **_half_rises(rises)}


B6 = Rule(
    claim="B6",
    sentence="with full matrices, singular values appear in turn",
    quantity="first singular values whose rises do not overlap, at the smallest alpha",
    bound=f">= {FIRST}, and no fewer than at larger alphas",
    measure=measure_rises,
    needs=full_heads,
    network=teacher_of,
    table="values that rise, those that do in turn, half-rise times and 10-90% widths of the first",
    changed=True,
    reason=(
        "The first rule asks the same of each alpha, where the paper speaks of small ones, and "
        "reads K-Q in runs that end before it rises."
    ),
)


def measure_first_rises(runs: Runs) -> Iterator[Measured]:
    """Ask that the first 3 singular values of a product rise in turn.

    Their half-rise times have to lie further apart than their 10-90% widths. Both products of each
    network are judged. If too few have risen in turn and the next one has not risen and settled
    yet, the seed cannot tell.
    """
    for key in runs:
        for product, part in KINDS.items():
            for seed, ds in runs[key].items():
                rises = rises_of(ds, product)
                met = _in_turn(rises, FIRST)
                measured = Measured(rises.separated, met, rows=(_half_rises(rises),))
                yield measured.at(key, seed, part=part)


B6_FIRST = Rule(
    claim="B6-first",
    headline="B6",
    sentence=B6.sentence,
    quantity="first singular values whose rises do not overlap",
    bound=f">= {FIRST}",
    measure=measure_first_rises,
    needs=runs_of(kind=FULL),
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


def _risen(rises: Rises) -> int:
    """Return the number of values that rose and settled."""
    return int((~rises.half.isnan()).sum())


def _in_turn(rises: Rises, least: int) -> bool | None:
    """Return whether so many rise in turn; None if the next has not risen and settled."""
    if rises.separated >= least:
        return True
    return None if bool(rises.half[rises.separated].isnan()) else False


def _half_rises(rises: Rises) -> Mapping[str, float]:
    columns = {"half-rise": rises.half.tolist(), "width": rises.width.tolist()}
    first = range(min(FIRST + 1, len(rises.half)))
    return {f"{name} {k + 1}": times[k] for k in first for name, times in columns.items()}
