"""An experiment is a declaration: runs, seeds, claims, figures. Nothing here runs anything.

Each lives in a file of its own, `lab/experiments/<paper>/<name>.py`, whose docstring is the
contract and whose one function is `experiment(scale) -> Experiment`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

import xarray as xr
from matplotlib.figure import Figure

from rankscope.lab.verdict import Verdict

Scale = Literal["paper", "small", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)

# Run name -> seed -> what it stored. A declared run that is not there whole raises `MissingRun`
# when it is asked for, so that no claim is decided on a part without noticing.
Results = Mapping[str, Mapping[int, xr.Dataset]]
Claim = Callable[[Results], Verdict]
FigureMaker = Callable[[Results], Figure]

PART = re.compile(r"(?!seed-)[A-Za-z0-9][A-Za-z0-9.,=+_-]*")
TAKEN = {"figures", "verdicts.json"}


@runtime_checkable
class Progress(Protocol):
    """Takes the finished part, 0 to 1, as often as one likes, and a few words on how it goes."""

    def __call__(self, fraction: float, note: str = "") -> None: ...


@runtime_checkable
class Run(Protocol):
    """Something that can be computed and stored: a flow, a training, Algorithm 1.

    Implementations are frozen dataclasses. Their fields are the run's identity: a run is not
    computed again as long as they and the seed stay the same (`field(compare=False)` for one that
    does not matter). They travel to another process, so build what is large in `execute`.
    """

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        """Write one store at `path`, where nothing is, and close it.

        Declaration, seed, versions and wall time become attributes of the store afterwards.
        Whatever is raised is kept as the run's failure; other runs go on.
        """


@runtime_checkable
class ResumableRun(Run, Protocol):
    """A run that goes on where it was interrupted: at `path` may be what it left there."""

    def forget(self, path: Path) -> None:
        """Remove what it keeps beside its store to be able to go on."""


class MissingRun(LookupError):
    """A claim or figure asked for a run that is not there whole.

    Not a KeyError: `in` and `get` on results are to raise it too.
    """

    def __init__(self, name: str, seed: int, reason: str) -> None:
        super().__init__(f"{name}, seed {seed}: {reason}")
        self.name = name
        self.seed = seed


class TooFewRuns(ValueError):
    """Nothing can be made of the runs there are; the message says which it would take."""


@dataclass(frozen=True)
class Experiment:
    """What is run, with which seeds, and what is made of it.

    name: "boix2023/toy-diag", as its file is called.
    runs: those that take longest first: they are started in this order.
    claims: by key ("B3"). figures: by the name of their file ("figure-6").
    expected_seconds: of all runs and seeds; None if nobody measured any of it.
    expected_on: the machine that takes so long.
    """

    name: str
    scale: Scale
    runs: Mapping[str, Run]
    seeds: tuple[int, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    figures: Mapping[str, FigureMaker] = field(default_factory=dict)
    expected_seconds: float | int | None = None
    expected_on: str = "2 cores"

    def __post_init__(self) -> None:
        for name in (self.name, *self.runs, *self.figures):
            parts = name.split("/")
            if not all(map(PART.fullmatch, parts)) or (name in self.runs and parts[0] in TAKEN):
                raise ValueError(
                    f"experiment {self.name!r}: {name!r} cannot name a folder; join words of "
                    "letters, digits and . , = + _ - by '/', none beginning with 'seed-'"
                )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(
                f"experiment {self.name!r}: seeds must be different whole numbers from 0 on, at "
                f"least one; got {self.seeds}"
            )

    def folder(self, out: Path) -> Path:
        """Where its runs, verdicts and figures are."""
        return out / self.name / self.scale
