"""The kept runs that findings read, each opened once, and tables with a column for each decay."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import xarray as xr

from rankscope.lab.catalogue import load
from rankscope.lab.claims.tally import Tally
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, collapsed
from rankscope.lab.reading import decays as runs_by_decay
from rankscope.lab.shelf import read_shelf, results_of
from rankscope.lab.verdict import Cell, Table

RESULTS = Path(__file__).parents[1] / "results"
DIRECTIONS = 10  # over which alignment is averaged

Row = tuple[Cell, ...]
Measure = Callable[[xr.Dataset], Cell]
Read = TypeVar("Read")


@cache
def kept(experiment: str) -> Results:
    """Run name -> seed -> what is kept of "yunis2024/lm", say, at the paper's size."""
    return results_of(read_shelf(load(experiment, "paper"), RESULTS))


@cache
def sweeps(network: str) -> dict[int, dict[float, xr.Dataset]]:
    """Seed -> decay, ascending -> run of yunis2024; without those that collapsed."""
    found = runs_by_decay(kept(f"yunis2024/{network}"), network)
    whole_seeds = sorted(set.intersection(*(set(of_decay) for of_decay in found.values())))
    return {
        seed: {decay: of[seed] for decay, of in found.items() if not collapsed(of[seed])}
        for seed in whole_seeds
    }


def seeds(network: str) -> list[int]:
    """Those of which a network of yunis2024 has every decay."""
    return list(sweeps(network))


def sweep(network: str, seed: int = 0) -> dict[float, xr.Dataset]:
    """One seed's runs that did not collapse, by decay, ascending."""
    return sweeps(network)[seed]


def decays(network: str) -> list[float]:
    """Those at which some seed did not collapse, ascending: the columns of a table."""
    return sorted({decay for runs in sweeps(network).values() for decay in runs})


def base_run(network: str, seed: int = 0) -> xr.Dataset:
    """That at the decay of the paper's figures 1-3."""
    return sweep(network, seed)[BASE[network]]


def base_runs(networks: Iterable[str] = tuple(BASE)) -> dict[tuple[str, int], xr.Dataset]:
    """Those of every network and seed."""
    return {(net, seed): base_run(net, seed) for net in networks for seed in seeds(net)}


def shown(count: int, of: int) -> str:
    """ "3 of 14"."""
    return f"{count} of {of}"


def met(tally: Tally) -> int:
    return len(tally.counted) - len(tally.exceptions)


def met_of(tally: Tally) -> str:
    """How many meet a bound, "3 of 14"."""
    return shown(met(tally), len(tally.counted))


def of_kind(ds: xr.Dataset | xr.DataArray, kind: str) -> np.ndarray:
    """(pair): whether it is of this kind."""
    those: np.ndarray = ds["pair_kind"].to_numpy() == kind
    return those


def decay_columns(columns: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"decay {decay:g}" for decay in columns)


def by_column(
    columns: Iterable[float], of: Mapping[float, Read], read: Callable[[Read], Cell]
) -> Row:
    """A cell for each decay; None where there is nothing at it."""
    return tuple(read(of[decay]) if decay in of else None for decay in columns)


def decay_table(title: str, network: str, measures: Mapping[str, Measure]) -> Table:
    """A row for each seed and measure, a column for each decay."""
    rows = [
        (seed, name, *by_column(decays(network), sweep(network, seed), measure))
        for seed in seeds(network)
        for name, measure in measures.items()
    ]
    return Table(("seed", "", *decay_columns(decays(network))), tuple(rows), title)
