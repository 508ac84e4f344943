"""results/ledger.json: the runs that are due, in their order, and what is there of them.

It also knows the figures that were drawn of them. Nothing in it is believed: `results check`
makes it again from the files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from rankscope.lab.catalogue import load, load_paper
from rankscope.lab.findings import read_json, write_json
from rankscope.lab.kept_run import LEDGER
from rankscope.lab.paper import Paper
from rankscope.store.archive import archive_attrs

Key = tuple[str, str, int]  # experiment, run, seed


@dataclass(frozen=True)
class Batch:
    """Seeds of one experiment. optional: as machine time allows."""

    experiment: str
    seeds: tuple[int, ...]
    optional: bool = False

    @property
    def keys(self) -> Iterator[Key]:
        """Its runs."""
        runs = load(self.experiment, "paper").runs
        return ((self.experiment, run, seed) for seed in self.seeds for run in runs)


FIRST = (0,)
MORE = (1, 2)

PROGRAM = (
    Batch("yunis2024/mlp", FIRST),
    Batch("yunis2024/vgg", FIRST),
    Batch("boix2023/vit-cifar10", FIRST),
    Batch("yunis2024/unet", FIRST),
    Batch("yunis2024/grok", FIRST),
    Batch("yunis2024/lm", FIRST),
    Batch("yunis2024/lstm", FIRST),
    Batch("yunis2024/mlp", MORE),
    Batch("yunis2024/vgg", MORE),
    # On a CPU.
    Batch("boix2023/toy-diag", (*FIRST, *MORE)),
    Batch("boix2023/toy-full", (*FIRST, *MORE)),
    Batch("boix2023/assumptions", (*FIRST, *MORE)),
    Batch("boix2023/diag-transformer", (*FIRST, *MORE)),
    Batch("boix2023/vit-cifar10", MORE, optional=True),
    Batch("yunis2024/unet", MORE, optional=True),
    Batch("yunis2024/grok", MORE, optional=True),
    Batch("yunis2024/lm", MORE, optional=True),
    Batch("yunis2024/lstm", MORE, optional=True),
)


def run_command(experiment: str, *seeds: int) -> str:
    """What to type for these seeds of an experiment at the paper's size."""
    chosen = "".join(f" --seed {seed}" for seed in seeds)
    return f"rankscope run {experiment} --scale paper{chosen}"


def due_papers() -> tuple[Paper, ...]:
    """The papers that the experiments of the program are from."""
    names = dict.fromkeys(batch.experiment.partition("/")[0] for batch in PROGRAM)
    return tuple(load_paper(name, "paper") for name in names)


@dataclass(frozen=True)
class Done:
    """A kept run and where it comes from. speed: with its unit, "72,000 images/s"; or "".

    sha256, bytes: of its file.
    """

    identity: str
    commit: str
    device: str
    started: str
    seconds: float
    speed: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Drawn:
    """A figure: the hash of its file, or "" where the runs there are cannot give it.

    inputs, code: hashes of the files of all runs of its subject, and of the code that draws it.
    """

    sha256: str
    inputs: str
    code: str


@dataclass(frozen=True)
class Ledger:
    """done: by experiment, run and seed. figures: by their path within the results."""

    done: Mapping[Key, Done] = field(default_factory=dict)
    figures: Mapping[str, Drawn] = field(default_factory=dict)


def read_ledger(results: Path) -> Ledger:
    """That of a folder of results; an empty one if there is none."""
    path = results / LEDGER
    if not path.exists():
        return Ledger()
    stored = read_json(path)
    try:
        return Ledger(
            done={
                (entry["experiment"], entry["run"], entry["seed"]): Done(**entry["done"])
                for entry in stored["runs"]
                if entry["done"]
            },
            figures={name: Drawn(**entry) for name, entry in stored["figures"].items()},
        )
    except (KeyError, TypeError) as wrong:
        raise ValueError(
            f"{path} is not a ledger as this rankscope writes it ({wrong}); restore it, or keep "
            "the runs anew in an empty folder"
        ) from None


def write_ledger(ledger: Ledger, results: Path) -> None:
    write_json(ledger_json(ledger), results / LEDGER)


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    """Runs in the order of the program, then any that were kept besides."""
    due = {key: "optional" if batch.optional else "yes" for batch in PROGRAM for key in batch.keys}
    besides = dict.fromkeys(sorted(ledger.done.keys() - due.keys()), "no")
    return {
        "runs": [
            {
                "experiment": experiment,
                "run": run,
                "seed": seed,
                "due": said,
                "command": run_command(experiment, seed),
                "done": asdict(done)
                if (done := ledger.done.get((experiment, run, seed)))
                else None,
            }
            for (experiment, run, seed), said in {**due, **besides}.items()
        ],
        "figures": {name: asdict(each) for name, each in sorted(ledger.figures.items())},
    }


def done_of(path: Path) -> Done:
    """What the ledger says of a file."""
    attrs = archive_attrs(path)
    if not attrs:
        raise ValueError(f"{path} is not a whole file of a run; restore it, or keep the run again")
    return Done(
        identity=attrs["identity"],
        commit=attrs.get("commit", ""),
        device=attrs.get("device", ""),
        started=attrs.get("started", ""),
        seconds=round(float(attrs["wall_seconds"]), 1),
        speed=_speed(attrs),
        sha256=digest(path),
        bytes=path.stat().st_size,
    )


def _speed(attrs: Mapping[str, Any]) -> str:
    """ "72,000 images/s", to three digits; "" of what has no speed."""
    if not attrs.get("speed"):
        return ""
    digits = float(f"{attrs['speed']:.3g}")
    return f"{digits:,.0f} {attrs['unit']}/s"


def digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a file; "" of none."""
    return sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def sizes(ledger: Ledger) -> dict[str, int]:
    """Bytes of the files of every experiment."""
    names = dict.fromkeys(name for name, _, _ in ledger.done)
    return {
        name: sum(done.bytes for key, done in ledger.done.items() if key[0] == name)
        for name in names
    }


def kept_files(results: Path) -> list[Path]:
    """Every file of a folder of results but those of reports."""
    every = [path for path in sorted(results.rglob("*")) if path.is_file()]
    reports = tuple(results.rglob("report-*"))
    return [path for path in every if not any(path.is_relative_to(each) for each in reports)]
