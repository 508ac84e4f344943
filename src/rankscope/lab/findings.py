"""What the stored runs of an experiment show: a verdict for each claim, and its figures."""

import inspect
import json
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import xarray as xr
from matplotlib.figure import Figure

from rankscope import __version__, store
from rankscope.figures import save
from rankscope.lab.experiment import Experiment, MissingRun, Results
from rankscope.lab.stored_run import State, StoredRun, stored_runs
from rankscope.lab.verdict import Verdict, undecided
from rankscope.store.files import replace_file

Found = TypeVar("Found")

# Run name -> seed -> what it stored, or why that is not there.
Shelf = Mapping[str, Mapping[int, xr.Dataset | str]]

ABSENT: dict[State, str] = {
    "missing": "was not run",
    "interrupted": "was not finished",
    "changed": "was run as it was declared before",
    "foreign": "is not an experiment's",
}


@dataclass(frozen=True)
class Findings:
    """Verdicts and the files of the figures, with what had to be left out.

    remarks: sentences on seeds that a figure lacks or figures that lack every seed.
    faults: tracebacks of claims and figures that raised: mistakes in their code, not in the runs.
    """

    verdicts: tuple[Verdict, ...]
    figures: tuple[Path, ...]
    remarks: tuple[str, ...]
    faults: tuple[str, ...]


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


def find(experiment: Experiment, out: Path, *, seeds: tuple[int, ...] = ()) -> Findings:
    """Judge the claims, draw the figures, and write both beside the runs.

    Uses every declared seed of which something is there, and `seeds` in any case.
    """
    shelf, folder = read_shelf(experiment, out, seeds=seeds), experiment.folder(out)
    claims = {key: with_whole_seeds(claim, shelf) for key, claim in experiment.claims.items()}
    verdicts = tuple(verdict_of(experiment, key, attempt) for key, attempt in claims.items())
    write_verdicts(experiment, verdicts, folder / "verdicts.json")
    drawn = {name: with_whole_seeds(maker, shelf) for name, maker in experiment.figures.items()}
    paths = [
        path
        for name, attempt in drawn.items()
        if attempt.found is not None
        for path in save(attempt.found, folder / "figures" / name)
    ]
    remarks = [remark for name, attempt in drawn.items() for remark in remarks_on(name, attempt)]
    faults = [a.fault for a in claims.values()] + [a.fault for a in drawn.values()]
    return Findings(verdicts, tuple(paths), tuple(remarks), tuple(filter(None, faults)))


def read_shelf(experiment: Experiment, out: Path, *, seeds: tuple[int, ...] = ()) -> Shelf:
    """The stored runs of the declared seeds of which something is there, and of `seeds`."""
    every = sorted({*experiment.seeds, *seeds})
    found = {(run.name, run.seed): run for run in stored_runs(experiment, out, seeds=tuple(every))}
    there = {seed for (_, seed), run in found.items() if run.state == "whole"}
    shown = [seed for seed in every if seed in there or seed in seeds]
    return {name: {seed: _read(found[name, seed]) for seed in shown} for name in experiment.runs}


def _read(stored: StoredRun) -> xr.Dataset | str:
    """What is stored, or why it is not there."""
    state = stored.state
    if state == "whole":
        return store.open(stored.path)
    return f"failed ({stored.failure})" if stored.failure else ABSENT[state]


@dataclass(frozen=True)
class Attempt(Generic[Found]):
    """What a claim or figure made of the runs; `lost` says which it would have needed too.

    Nothing was found if every seed lacks one, or if the code raised: `fault` is the traceback.
    """

    found: Found | None
    lost: tuple[str, ...]
    fault: str | None = None

    @property
    def reason(self) -> str:
        """Why nothing was found."""
        return self.fault.splitlines()[-1] if self.fault else "no seed has all the runs it needs"


def with_whole_seeds(function: Callable[[Results], Found], shelf: Shelf) -> Attempt[Found]:
    """What `function` makes of the seeds that have every run it asks for.

    One mistake in its code must not cost what the other claims and figures have to say.
    """
    lost: dict[int, str] = {}
    while results := results_of(shelf, without=lost):
        try:
            return Attempt(function(results), tuple(lost.values()))
        except MissingRun as missing:
            assert missing.seed not in lost
            lost[missing.seed] = str(missing)
        except Exception:
            return Attempt(None, tuple(lost.values()), traceback.format_exc())
    return Attempt(None, tuple(lost.values()))


def results_of(shelf: Shelf, *, without: Collection[int] = ()) -> Results:
    """What claims and figures are given; empty if no run is whole but for seeds left out.

    What is whole comes first, since runtime type checkers look at the first entry of a mapping.
    """
    kept = {
        name: sorted(
            ((seed, entry) for seed, entry in seeds.items() if seed not in without),
            key=lambda item: isinstance(item[1], str),
        )
        for name, seeds in shelf.items()
    }
    lacking = {name: all(isinstance(e, str) for _, e in entries) for name, entries in kept.items()}
    if all(lacking.values()):
        return {}
    return {name: Seeds(name, dict(kept[name])) for name in sorted(kept, key=lacking.__getitem__)}


def verdict_of(experiment: Experiment, key: str, attempt: Attempt[Verdict]) -> Verdict:
    """The verdict of one claim; undecided, with the reason, where a seed was lost or all were."""
    verdict = attempt.found or undecided(
        key, first_line(experiment.claims[key]), f"could not be judged: {attempt.reason}"
    )
    assert verdict.claim == key, f"{experiment.name} calls {verdict.claim} by the key {key}"
    if not attempt.lost:
        return verdict
    evidence = (*(f"without {lost}" for lost in attempt.lost), *verdict.evidence)
    return replace(verdict, holds="undecided", evidence=evidence)


def remarks_on(name: str, attempt: Attempt[Figure]) -> list[str]:
    """What a reader of the figure, or one who looks for it in vain, should know."""
    remarks = [f"{name} is drawn without {lost}" for lost in attempt.lost]
    if attempt.found is None:
        remarks = [f"{name} could not be drawn: {attempt.reason}", *attempt.lost]
    return remarks


def first_line(thing: object) -> str:
    """The first line of a docstring; "" if there is none."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def verdicts_json(experiment: Experiment, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """What programs read."""
    return {
        "experiment": experiment.name,
        "scale": experiment.scale,
        "rankscope": __version__,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }


def write_verdicts(experiment: Experiment, verdicts: tuple[Verdict, ...], path: Path) -> None:
    text = json.dumps(verdicts_json(experiment, verdicts), indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{text}\n".encode(), durable=False)
