"""Archived runs at several decays, and tables with a column for each decay."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.yunis2024.runs import BASE, base_runs_of
from rankscope.lab.reporting.evidence import Row
from rankscope.lab.training.outcome import collapsed

Reading = Callable[[xr.Dataset], Cell]
T = TypeVar("T")


@dataclass(frozen=True)
class Sweeps:
    """Runs of one network by seed and decay, ascending, without those that collapsed."""

    by_seed: Mapping[int, Mapping[float, xr.Dataset]]

    @property
    def first(self) -> Mapping[float, xr.Dataset]:
        """Runs of the first seed by decay."""
        return self.by_seed[min(self.by_seed)]

    @property
    def decays(self) -> list[float]:
        """Decays at which some seed did not collapse, ascending: the columns of a table."""
        return sorted({decay for runs in self.by_seed.values() for decay in runs})

    def table(self, title: str, readings: Mapping[str, Reading]) -> Table:
        """Return a table with a row for each seed and reading, a column for each decay."""
        rows = tuple(
            (seed, name, *by_column(self.decays, runs, read))
            for seed, runs in self.by_seed.items()
            for name, read in readings.items()
        )
        return Table(("seed", "", *decay_columns(self.decays)), rows, title)


def sweeps_of(runs: Runs, network: str) -> Sweeps:
    """Return the runs of one network that did not collapse."""
    by_decay = runs.of(network).by("decay")
    return Sweeps(
        {
            seed: {
                decay: seeds[seed]
                for decay, seeds in by_decay.items()
                if not collapsed(seeds[seed])
            }
            for seed in runs.of(network).seeds
        }
    )


def at_base_decay(runs: Runs, *networks: str) -> dict[tuple[str, int], xr.Dataset]:
    """Return the runs at the decay of figures 1-3 by network and seed; by default of all four."""
    keys = base_runs_of(*(networks or BASE))(list(runs))
    return {(key.network, seed): ds for key in keys for seed, ds in runs[key].items()}


def base_run(runs: Runs, network: str) -> xr.Dataset:
    """Return the first seed of a network at the decay of figures 1-3."""
    return next(iter(at_base_decay(runs, network).values()))


def decay_columns(decays: Iterable[float]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(f"decay {decay:g}" for decay in decays)


def by_column(decays: Iterable[float], values: Mapping[float, T], read: Callable[[T], Cell]) -> Row:
    """Return a cell for each decay; None where there is no value."""
    return tuple(read(values[decay]) if decay in values else None for decay in decays)
