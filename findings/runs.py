"""The kept runs that findings read, each opened once, and tables with a column for each decay."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import xarray as xr

import rankscope
from rankscope.lab.reading import BASE, collapsed
from rankscope.lab.verdict import Cell, Table

RESULTS = Path(__file__).parents[1] / "results"
SEED = re.compile(r"seed-(\d+)\.zarr\.zip")

Row = tuple[Cell, ...]
Measure = Callable[[xr.Dataset], Cell]


@cache
def run(name: str, seed: int = 0) -> xr.Dataset:
    """name: "yunis2024/lm/lm/decay-0.1", say."""
    return rankscope.open(RESULTS / name / f"seed-{seed}.zarr.zip")


def seeds(network: str) -> list[int]:
    """Those of which a network of yunis2024 has every decay."""
    kept = [seeds_in(folder) for folder in _folder(network).glob("decay-*")]
    return sorted(set.intersection(*map(set, kept)))


def seeds_in(folder: Path) -> list[int]:
    """Those of one run, rising."""
    found = (SEED.fullmatch(file.name) for file in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


@cache
def sweep(network: str, seed: int = 0) -> dict[float, xr.Dataset]:
    """The runs that did not collapse, by decay, ascending."""
    names = [folder.name for folder in _folder(network).glob("decay-*")]
    decays = sorted(float(name.removeprefix("decay-")) for name in names)
    runs = {decay: run(f"yunis2024/{network}/{network}/decay-{decay:g}", seed) for decay in decays}
    return {decay: ds for decay, ds in runs.items() if not collapsed(ds)}


def base_run(network: str, seed: int = 0) -> xr.Dataset:
    """That at the decay of the paper's figures 1-3."""
    return sweep(network, seed)[BASE[network]]


def base_runs(networks: Iterable[str] = tuple(BASE)) -> dict[tuple[str, int], xr.Dataset]:
    """Those of every network and seed."""
    return {(net, seed): base_run(net, seed) for net in networks for seed in seeds(net)}


def shown(count: int, of: int) -> str:
    """ "3 of 14"."""
    return f"{count} of {of}"


def decay_columns(network: str) -> tuple[str, ...]:
    return tuple(f"decay {decay:g}" for decay in sweep(network))


def decay_table(title: str, network: str, measures: Mapping[str, Measure]) -> Table:
    """A row for each seed and measure, a column for each decay."""
    rows = [
        (seed, name, *(measure(ds) for ds in sweep(network, seed).values()))
        for seed in seeds(network)
        for name, measure in measures.items()
    ]
    return Table(("seed", "", *decay_columns(network)), tuple(rows), title)


def _folder(network: str) -> Path:
    return RESULTS / "yunis2024" / network / network
