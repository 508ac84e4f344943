"""The stored runs that claims and figures are made of, and what to do where one is not there.

Runs of one network stand or fall together: where one that a function asks for lacks a seed, that
seed of the network is left out, and what is not there of it is named.
"""

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import xarray as xr

from rankscope import store
from rankscope.lab.experiment import Experiment, MissingRun, Results, TooFewRuns
from rankscope.lab.reading import network, variant
from rankscope.lab.stored_run import State, StoredRun, stored_runs

Found = TypeVar("Found")

# Run name -> seed -> what it stored, or why that is not there.
Shelf = Mapping[str, Mapping[int, xr.Dataset | str]]

NetworkSeed = tuple[str, int]

ABSENT: dict[State, str] = {
    "missing": "was not run",
    "interrupted": "was not finished",
    "changed": "was run as it was declared before",
    "foreign": "is not an experiment's",
}
MOST_NAMED = 4  # runs of a network that are not there; of more their number is said
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
    """What a claim or figure made of the runs; `lost` says what is not there of seeds it lacks.

    Nothing was found if every seed lacks one, if these runs cannot have what was asked for (`lack`
    says what that is), or if the code raised: `fault` is the traceback.
    complete: the networks that lack no seed.
    """

    found: Found | None
    lost: tuple[str, ...]
    lack: str = ""
    fault: str | None = None
    complete: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """Why nothing was found."""
        if self.fault:
            return self.fault.splitlines()[-1]
        return self.lack or "no seed has all the runs it needs"


def with_whole_seeds(function: Callable[[Results], Found], shelf: Shelf) -> Attempt[Found]:
    """What `function` makes of the seeds that have every run of a network it asks for.

    One mistake in its code must not cost what the other claims and figures have to say.
    """
    without: dict[NetworkSeed, None] = {}  # in the order they were missed

    def ended(found: Found | None, **why: str) -> Attempt[Found]:
        complete = frozenset(map(network, shelf)) - {of for of, _ in without}
        return Attempt(found, tuple(_lost(shelf, without)), complete=complete, **why)

    while results := results_of(shelf, without=without):
        try:
            return ended(function(results))
        except UndeclaredRun as missing:
            return ended(None, lack=str(missing))
        except MissingRun as missing:
            of = network(missing.name)
            assert (of, missing.seed) not in without
            seeds = shelf[missing.name] if _empty(shelf, of) else [missing.seed]
            without |= dict.fromkeys((of, seed) for seed in seeds)
        except TooFewRuns as lack:
            return ended(None, lack=str(lack))
        except Exception:
            return ended(None, fault=traceback.format_exc())
    return ended(None)


def _empty(shelf: Shelf, of: str) -> bool:
    """Whether nothing is there of a network."""
    every = [seeds.values() for name, seeds in shelf.items() if network(name) == of]
    return all(isinstance(entry, str) for entries in every for entry in entries)


def _lost(shelf: Shelf, without: Collection[NetworkSeed]) -> Iterator[str]:
    """ "a/x, y of seeds 0, 1: was not run"; of a network of which nothing is there "a: ..."."""
    for of in dict.fromkeys(of for of, _ in without):
        runs = [name for name in shelf if network(name) == of]
        seeds = [seed for each, seed in without if each == of]
        alike: dict[tuple[tuple[str, ...], str], list[int]] = {}  # runs, reason
        for seed in seeds:
            entries = {name: shelf[name].get(seed) for name in runs}
            why = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
            for reason in dict.fromkeys(why.values()):
                absent = tuple(name for name in why if why[name] == reason)
                alike.setdefault((absent, reason), []).append(seed)
        for (names, reason), lacking in alike.items():
            all_of_it = len(names) == len(runs) and len(lacking) == len(shelf[runs[0]])
            yield f"{of if all_of_it else _named(names, runs, lacking)}: {reason}"


def _named(names: Sequence[str], runs: Sequence[str], seeds: Sequence[int]) -> str:
    shown = ", ".join([names[0], *map(variant, names[1:])])
    if len(names) > MOST_NAMED:
        shown = f"{len(names)} of {len(runs)} {network(names[0])} runs"
    return f"{shown} of seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def results_of(shelf: Shelf, *, without: Collection[NetworkSeed] = ()) -> Runs:
    """What claims and figures are given; empty if no run is whole but for seeds left out.

    A run of which no seed is left is not there. What is whole comes first, since runtime type
    checkers look at the first entry of a mapping.
    """
    kept = {
        name: sorted(
            ((s, entry) for s, entry in seeds.items() if (network(name), s) not in without),
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
