"""Counts of matrices or pairs that meet a bound, with the names of those that do not."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.lab.judging.verdict import Table

MOST_NAMED = 3  # exceptions named in a cell; `exception_table` lists the others


@dataclass(frozen=True)
class Tally:
    """Names that were counted, the exceptions among them, and names that cannot tell."""

    counted: tuple[str, ...]
    exceptions: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Fraction of the counted names that meet the bound; NaN if none is counted."""
        count = len(self.counted)
        return (count - len(self.exceptions)) / count if count else math.nan

    def at_least(self, share: float) -> bool | None:
        """Whether the share is this large; None if none is counted."""
        return self.share >= share if self.counted else None

    def __str__(self) -> str:
        """Return "2 of 53: conv1, conv2; 12 cannot tell"."""
        shown = f"{len(self.exceptions) or 'none'} of {len(self.counted)}"
        if 0 < len(self.exceptions) <= MOST_NAMED:
            shown += f": {', '.join(self.exceptions)}"
        return shown + (f"; {len(self.unknown)} cannot tell" if self.unknown else "")


def count(met: xr.DataArray, *, measured: xr.DataArray) -> Tally:
    """Count where `met` is true along its one dimension; NaN in `measured` cannot tell."""
    (dim,) = met.dims
    names = met[dim].to_numpy().astype(object)
    known, unmet = ~np.isnan(measured.to_numpy()), ~met.to_numpy()
    return Tally(tuple(names[known]), tuple(names[known & unmet]), tuple(names[~known]))


def all_met(parts: Iterable[bool | None]) -> bool | None:
    """Return False if a part of a rule is not met, else None if one is unknown, else True."""
    outcomes = list(parts)
    if any(part is not None and not part for part in outcomes):
        return False
    return None if None in outcomes else True


@dataclass(frozen=True)
class SeedTally:
    """A tally of one network and seed, for one part of a rule."""

    network: str
    seed: int | str
    part: str
    tally: Tally


def exception_table(tallies: Iterable[SeedTally]) -> list[Table]:
    """Return a table of every exception and every name that cannot tell; [] if there is none."""
    together: dict[tuple[str, str], list[SeedTally]] = {}
    for entry in tallies:
        together.setdefault((entry.network, entry.part), []).append(entry)
    rows = [
        (
            network,
            part,
            _names_by_seeds((entry.seed, entry.tally.exceptions) for entry in group),
            _names_by_seeds((entry.seed, entry.tally.unknown) for entry in group),
        )
        for (network, part), group in together.items()
        if any(entry.tally.exceptions or entry.tally.unknown for entry in group)
    ]
    columns = ("network", "part of the rule", "exceptions", "cannot tell")
    return [Table(columns, tuple(rows), "every exception, by seed")] if rows else []


def _names_by_seeds(names_of_seeds: Iterable[tuple[int | str, tuple[str, ...]]]) -> str:
    """Return "seed 0 1 2: conv1, conv3; seed 1: conv2", exceptions of most seeds first."""
    seeds_of_name: dict[str, list[str]] = {}
    for seed, names in names_of_seeds:
        for name in names:
            seeds_of_name.setdefault(name, []).append(str(seed))
    names_of: dict[tuple[str, ...], list[str]] = {}
    for name, seeds in seeds_of_name.items():
        names_of.setdefault(tuple(seeds), []).append(name)
    ordered = sorted(names_of.items(), key=lambda entry: -len(entry[0]))
    return (
        "; ".join(f"seed {' '.join(seeds)}: {', '.join(names)}" for seeds, names in ordered) or "-"
    )
