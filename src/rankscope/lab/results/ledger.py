"""results/ledger.json: the runs that are due, what is there of them, and what was drawn of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.lab.findings import write_json
from rankscope.lab.results.archive import LEDGER
from rankscope.lab.results.program import DueRun, due_runs, run_command

Key = tuple[str, str, int]  # experiment, run, seed


@dataclass(frozen=True)
class Done:
    """A kept run and where it comes from. speed: with its unit, "72,000 images/s"; or "".

    stride: every so many of its snapshots were kept. sha256, bytes: of its file.
    """

    identity: str
    commit: str
    device: str
    started: str
    seconds: float
    speed: str
    stride: int
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Drawn:
    """A figure: the hash of its file, and of the files of all runs that it was drawn from."""

    sha256: str
    inputs: str


@dataclass(frozen=True)
class Ledger:
    """done: by experiment, run and seed. figures: by their path within the results.

    thinning: place -> how verdicts of whole and of kept runs differ, when both were there.
    """

    done: Mapping[Key, Done] = field(default_factory=dict)
    figures: Mapping[str, Drawn] = field(default_factory=dict)
    thinning: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_ledger(results: Path) -> Ledger:
    """That of a folder of results; an empty one if there is none."""
    path = results / LEDGER
    if not path.exists():
        return Ledger()
    stored = json.loads(path.read_text())
    return Ledger(
        done={
            (entry["experiment"], entry["run"], entry["seed"]): Done(**entry["done"])
            for entry in stored["runs"]
            if entry["done"]
        },
        figures={name: Drawn(**entry) for name, entry in stored["figures"].items()},
        thinning={name: tuple(lines) for name, lines in stored["thinning"].items()},
    )


def write_ledger(ledger: Ledger, results: Path) -> None:
    write_json(ledger_json(ledger), results / LEDGER)


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    """Runs in the order of the program, then any that were kept besides."""
    due = {each.key: each for each in due_runs()}
    keys = [*due, *sorted(ledger.done.keys() - due.keys())]
    return {
        "rankscope": __version__,
        "runs": [_entry(key, due.get(key), ledger.done.get(key)) for key in keys],
        "figures": {name: asdict(each) for name, each in sorted(ledger.figures.items())},
        "thinning": {name: list(lines) for name, lines in sorted(ledger.thinning.items())},
    }


def _entry(key: Key, due: DueRun | None, done: Done | None) -> dict[str, Any]:
    experiment, run, seed = key
    return {
        "experiment": experiment,
        "run": run,
        "seed": seed,
        "due": "no" if due is None else "optional" if due.batch.optional else "yes",
        "command": run_command(experiment, seed),
        "done": asdict(done) if done else None,
    }


def sizes(ledger: Ledger) -> dict[str, int]:
    """Bytes of the files of every experiment."""
    names = dict.fromkeys(name for name, _, _ in ledger.done)
    return {
        name: sum(done.bytes for key, done in ledger.done.items() if key[0] == name)
        for name in names
    }
