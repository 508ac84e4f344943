"""The stored runs that claims and figures are made of, and what to do where one is not there.

A seed without one of the runs that a function asks for is left out, and named.
"""

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import xarray as xr

from rankscope import store
from rankscope.lab.experiment import Experiment, MissingRun, Results, TooFewRuns
from rankscope.lab.stored_run import State, StoredRun, stored_runs

Found = TypeVar("Found")

# Run name -> seed -> what it stored, or why that is not there.
Shelf = Mapping[str, Mapping[int, xr.Dataset | str]]

# Which runs stand or fall together: where one lacks a seed, the seed is left out of all of them.
Group = Callable[[str], str]

ABSENT: dict[State, str] = {
    "missing": "was not run",
    "interrupted": "was not finished",
    "changed": "was run as it was declared before",
    "foreign": "is not an experiment's",
}
SMALL = 2**26  # bytes: what is smaller is read once, and not by each claim and figure anew


class UndeclaredRun(MissingRun):
    """A run that is no part of what was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0, ABSENT["missing"])

    def __str__(self) -> str:
        return f"{self.name} {ABSENT['missing']}"


@dataclass(frozen=True)
class Seeds(Mapping[int, xr.Dataset]):
    """The seeds of one run; one that is not whole raises `MissingRun` when it is asked for."""

    name: str
    entries: Mapping[int, xr.Dataset | str]

    def __getitem__(self, seed: int) -> xr.Dataset:
        entry = self.entries[seed]
        if isinstance(entry, str):
            raise MissingRun(self.name, seed, entry)
        return entry

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Runs(dict[str, Seeds]):
    """Results in which a name that is not there raises `UndeclaredRun`."""

    def __missing__(self, name: str) -> Seeds:
        raise UndeclaredRun(name)


def read_shelf(experiment: Experiment, out: Path, *, seeds: tuple[int, ...] = ()) -> Shelf:
    """The stored runs of the declared seeds of which something is there, and of `seeds`.

    Where nothing is there at all, every declared seed is on the shelf with the reason.
    """
    every = sorted({*experiment.seeds, *seeds})
    found = {(run.name, run.seed): run for run in stored_runs(experiment, out, seeds=tuple(every))}
    there = {seed for (_, seed), run in found.items() if run.state == "whole"}
    shown = [seed for seed in every if seed in there or seed in seeds] or every
    return {name: {seed: _read(found[name, seed]) for seed in shown} for name in experiment.runs}


def _read(stored: StoredRun) -> xr.Dataset | str:
    """What is stored, or why it is not there."""
    state = stored.state
    if state == "whole":
        ds = store.open(stored.path)
        return ds.load() if ds.nbytes < SMALL else ds
    return f"failed ({stored.failure})" if stored.failure else ABSENT[state]


@dataclass(frozen=True)
class Attempt(Generic[Found]):
    """What a claim or figure made of the runs; `lost` says which it would have needed too.

    Nothing was found if every seed lacks one, if these runs cannot have what was asked for (`lack`
    says what that is), or if the code raised: `fault` is the traceback.
    incomplete: the groups of runs to which those that were lost belong.
    """

    found: Found | None
    lost: tuple[str, ...]
    lack: str = ""
    fault: str | None = None
    incomplete: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """Why nothing was found."""
        if self.fault:
            return self.fault.splitlines()[-1]
        return self.lack or "no seed has all the runs it needs"


def together(name: str) -> str:
    """All runs of an experiment stand or fall together."""
    return ""


def with_whole_seeds(
    function: Callable[[Results], Found], shelf: Shelf, *, group: Group = together
) -> Attempt[Found]:
    """What `function` makes of the seeds that have every run it asks for.

    One mistake in its code must not cost what the other claims and figures have to say.
    """
    without: set[tuple[str, int]] = set()
    lost: list[str] = []

    def ended(found: Found | None, **why: str) -> Attempt[Found]:
        return Attempt(found, tuple(lost), incomplete=frozenset(of for of, _ in without), **why)

    while results := results_of(shelf, without=without, group=group):
        try:
            return ended(function(results))
        except UndeclaredRun as missing:
            return ended(None, lack=str(missing))
        except MissingRun as missing:
            of = group(missing.name)
            if of and _empty(shelf, of, group):  # a whole network, named once
                without |= {(of, seed) for seed in shelf[missing.name]}
                lost.append(f"{of}: {shelf[missing.name][missing.seed]}")
                continue
            assert (of, missing.seed) not in without
            without.add((of, missing.seed))
            lost.append(str(missing))
        except TooFewRuns as lack:
            return ended(None, lack=str(lack))
        except Exception:
            return ended(None, fault=traceback.format_exc())
    return ended(None)


def _empty(shelf: Shelf, of: str, group: Group) -> bool:
    return all(
        isinstance(entry, str)
        for name, seeds in shelf.items()
        if group(name) == of
        for entry in seeds.values()
    )


def results_of(
    shelf: Shelf, *, without: Collection[tuple[str, int]] = (), group: Group = together
) -> Runs:
    """What claims and figures are given; empty if no run is whole but for seeds left out.

    without: (group, seed) of those. A run of which no seed is left is not there. What is whole
    comes first, since runtime type checkers look at the first entry of a mapping.
    """
    kept = {
        name: sorted(
            ((s, entry) for s, entry in seeds.items() if (group(name), s) not in without),
            key=lambda item: isinstance(item[1], str),
        )
        for name, seeds in shelf.items()
    }
    lacking = {
        name: all(isinstance(entry, str) for _, entry in entries) for name, entries in kept.items()
    }
    if all(lacking.values()):
        return Runs({})
    order = [name for name in sorted(kept, key=lacking.__getitem__) if kept[name]]
    return Runs({name: Seeds(name, dict(kept[name])) for name in order})
