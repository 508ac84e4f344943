"""Matrices or pairs of one run that meet a bound, those that do not, and those that cannot tell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from rankscope.lab.verdict import Table

NAMED = 3  # exceptions that a cell names; if there are more, `full_list` alone does


@dataclass(frozen=True)
class Tally:
    """How many of `counted` there are apart from `exceptions`, which are some of them.

    unknown: those that cannot tell, and are not counted.
    """

    counted: tuple[str, ...]
    exceptions: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Of those counted, the part that meets the bound; NaN if none is counted."""
        count = len(self.counted)
        return (count - len(self.exceptions)) / count if count else math.nan

    def at_least(self, share: float) -> bool | None:
        """Whether so large a part meets the bound; None if none is counted."""
        return self.share >= share if self.counted else None

    def __str__(self) -> str:
        """ "2 of 53: conv1, conv2; 12 cannot tell"."""
        shown = f"{len(self.exceptions) or 'none'} of {len(self.counted)}"
        if 0 < len(self.exceptions) <= NAMED:
            shown += f": {', '.join(self.exceptions)}"
        return shown + (f"; {len(self.unknown)} cannot tell" if self.unknown else "")


def count(met: xr.DataArray, *, measured: xr.DataArray) -> Tally:
    """Both over matrices or over pairs; one whose `measured` is NaN cannot tell."""
    (dim,) = met.dims
    names = met[dim].to_numpy().astype(object)
    known, unmet = ~np.isnan(measured.to_numpy()), ~met.to_numpy()
    return Tally(tuple(names[known]), tuple(names[known & unmet]), tuple(names[~known]))


@dataclass(frozen=True)
class SeedTally:
    """What was counted of one network and seed, and of which part of the rule."""

    network: str
    seed: int | str
    part: str
    tally: Tally


def full_list(tallies: Iterable[SeedTally]) -> list[Table]:
    """A table of every exception and every one that cannot tell, with its seeds; [] if none."""
    found: dict[tuple[str, str], list[SeedTally]] = {}
    for each in tallies:
        found.setdefault((each.network, each.part), []).append(each)
    rows = [
        (
            network,
            part,
            _with_seeds((each.seed, each.tally.exceptions) for each in of),
            _with_seeds((each.seed, each.tally.unknown) for each in of),
        )
        for (network, part), of in found.items()
        if any(each.tally.exceptions or each.tally.unknown for each in of)
    ]
    columns = ("network", "of", "exceptions", "cannot tell")
    table = Table(columns, tuple(rows), "every exception, by the seeds it is one in")
    return [table] if rows else []


def _with_seeds(names: Iterable[tuple[int | str, tuple[str, ...]]]) -> str:
    """ "seed 0 1 2: conv1, conv3; seed 1: conv2", those of most seeds first."""
    seeds: dict[str, list[str]] = {}
    for seed, of_seed in names:
        for name in of_seed:
            seeds.setdefault(name, []).append(str(seed))
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, of in seeds.items():
        alike.setdefault(tuple(of), []).append(name)
    ordered = sorted(alike.items(), key=lambda entry: -len(entry[0]))
    return "; ".join(f"seed {' '.join(of)}: {', '.join(group)}" for of, group in ordered) or "-"


def all_met(parts: Iterable[bool | None]) -> bool | None:
    """False if one part of a rule is not met, else None if one cannot be told, else True."""
    known = list(parts)
    if any(part is not None and not part for part in known):
        return False
    return None if None in known else True
