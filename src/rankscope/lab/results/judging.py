"""Verdicts and figures of kept runs, by place: a paper judged as a whole, or one experiment."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import xarray as xr

from rankscope.lab.experiment import Claim, Experiment, FigureMaker
from rankscope.lab.findings import verdict_of
from rankscope.lab.paper import Paper
from rankscope.lab.reading import network
from rankscope.lab.results.archive import archive_path
from rankscope.lab.results.compaction import open_kept
from rankscope.lab.results.ledger import Key, Ledger
from rankscope.lab.results.rules import Hashes, rule_hash
from rankscope.lab.shelf import ABSENT, Group, Shelf, together, with_whole_seeds
from rankscope.lab.verdict import Verdict

VERDICTS = "verdicts.json"
FIGURES = "figures"

# What was stored, by experiment, run and seed.
Datasets = Mapping[Key, xr.Dataset]


@dataclass(frozen=True)
class Place:
    """What is judged together; `name` is also its folder: "yunis2024", "boix2023/toy-diag"."""

    name: str
    experiments: tuple[Experiment, ...]
    claims: Mapping[str, Claim]
    figures: Mapping[str, FigureMaker]
    group: Group = together

    @property
    def keys(self) -> Iterator[Key]:
        """Every run that takes part in it, with every declared seed."""
        for experiment in self.experiments:
            for run in experiment.runs:
                yield from ((experiment.name, run, seed) for seed in experiment.seeds)


def places(papers: Iterable[Paper], ledger: Ledger) -> list[Place]:
    """Those of which some run was kept."""
    found = []
    for paper in papers:
        if paper.joint:
            found.append(Place(paper.name, paper.experiments, paper.claims, paper.figures, network))
        found += [Place(e.name, (e,), e.claims, e.figures) for e in paper.experiments]
    return [place for place in found if any(key in ledger.done for key in place.keys)]


def by_paper(there: Iterable[Place]) -> list[list[Place]]:
    """Places that share runs: those of one paper, which memory has to hold at a time."""
    return [list(of) for _, of in groupby(there, lambda place: place.name.partition("/")[0])]


def read_kept(there: Iterable[Place], ledger: Ledger, results: Path) -> Datasets:
    """The kept runs that take part in any of the places."""
    keys = dict.fromkeys(key for place in there for key in place.keys if key in ledger.done)
    return {key: open_kept(archive_path(results, *key)) for key in keys}


def hashes_of(places: Iterable[Place]) -> Hashes:
    """The hash of every claim's rule."""
    return {
        place.name: {key: rule_hash(claim) for key, claim in place.claims.items()}
        for place in places
    }


def shelf_of(place: Place, datasets: Datasets) -> Shelf:
    """Seeds of which some run of the experiment is there; all declared ones if there is none."""
    shelf: dict[str, dict[int, xr.Dataset | str]] = {}
    for experiment in place.experiments:
        name, seeds = experiment.name, experiment.seeds
        there = [s for s in seeds if any((name, run, s) in datasets for run in experiment.runs)]
        for run in experiment.runs:
            shelf[run] = {
                seed: datasets.get((name, run, seed), ABSENT["missing"]) for seed in there or seeds
            }
    return shelf


@dataclass(frozen=True)
class Judgement:
    """Verdicts, and tracebacks of claims that raised."""

    verdicts: tuple[Verdict, ...]
    faults: tuple[str, ...]


def judge_place(place: Place, datasets: Datasets) -> Judgement:
    """What the runs say of every claim of a place."""
    shelf = shelf_of(place, datasets)
    attempts = {
        key: with_whole_seeds(claim, shelf, group=place.group)
        for key, claim in place.claims.items()
    }
    return Judgement(
        tuple(verdict_of(key, place.claims[key], each) for key, each in attempts.items()),
        tuple(each.fault for each in attempts.values() if each.fault),
    )


def verdicts_json(place: Place, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """What programs read."""
    return {"of": place.name, "scale": "paper", "verdicts": [each.to_json() for each in verdicts]}


def read_verdicts(place: Place, results: Path) -> list[Verdict]:
    """Those that were written for a place."""
    stored = json.loads((results / place.name / VERDICTS).read_text())
    return [Verdict.from_json(each) for each in stored["verdicts"]]


def inputs_of(place: Place, ledger: Ledger) -> str:
    """A hash of the files of all its runs."""
    files = [f"{key} {ledger.done[key].sha256}" for key in place.keys if key in ledger.done]
    return sha256("\n".join(sorted(files)).encode()).hexdigest()


def differences(whole: Iterable[Verdict], kept: Iterable[Verdict]) -> list[str]:
    """Where kept runs say something else of a claim, or a seed of a network, than whole ones."""
    by_whole, by_kept = (
        dict(outcome for verdict in of for outcome in _outcomes(verdict)) for of in (whole, kept)
    )
    return [
        f"{of} {by_whole.get(of)} by whole runs, {by_kept.get(of)} by kept ones"
        for of in dict.fromkeys([*by_whole, *by_kept])
        if by_whole.get(of) != by_kept.get(of)
    ]


def _outcomes(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield verdict.claim, verdict.holds
    for each in verdict.networks:
        for seed in each.seeds:
            yield f"{verdict.claim}, {each.network}, seed {seed.seed}:", _met(seed.met)


def _met(met: bool | None) -> str:
    return {True: "met", False: "not met", None: "cannot tell"}[met]
