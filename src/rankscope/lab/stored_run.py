"""One run of an experiment and its place on disk: what is there, and how that comes and goes.

    <out>/<paper>/<experiment>/<scale>/<run>/seed-0                the store
                                             seed-0.begun.json     while it is not whole
                                             seed-0.checkpoint     of a run that can be resumed
                                             seed-0.failure.txt    what went wrong last
                                             seed-0.replaced-1     an earlier declaration's store

In a folder of results, which a ledger marks, a run of the paper's size is one file that only
`rankscope results keep` writes: <out>/<paper>/<experiment>/<run>/seed-0.zarr.zip

A store counts once its attributes say `whole`, which is the last thing written. Only what a begun
file says to be ours and unfinished is ever removed.
"""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch

from rankscope import store
from rankscope.lab.experiment import Experiment, ResumableRun, Run
from rankscope.lab.identity import changes, declaration, identity_of
from rankscope.lab.kept_run import is_results, kept_path
from rankscope.provenance import origin
from rankscope.store.archive import SUFFIX, archive_attrs
from rankscope.store.creation import read_contents
from rankscope.store.files import replace_file
from rankscope.store.lock import Lock

# changed: whole, of another declaration. interrupted: begun and not finished, or failed.
# foreign: not made by an experiment.
State = Literal["missing", "whole", "changed", "interrupted", "foreign"]


@dataclass(frozen=True)
class StoredRun:
    """A declared run with one seed, and the path where its store is or will be."""

    name: str
    seed: int
    run: Run
    path: Path

    @property
    def title(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @cached_property
    def declaration(self) -> Any:
        return declaration(self.run)

    @cached_property
    def identity(self) -> str:
        return identity_of(self.declaration, self.seed)

    @property
    def kept(self) -> bool:
        """Whether it is one file of a folder of results."""
        return self.path.name.endswith(SUFFIX)

    @property
    def attrs(self) -> dict[str, Any]:
        """What is stored about it; nothing where no store is."""
        if self.kept:
            return archive_attrs(self.path)
        try:
            return dict(read_contents(self.path).attrs)
        except ValueError:
            return {}

    @property
    def state(self) -> State:
        attrs = self.attrs
        if attrs.get("whole") is True:
            return "whole" if attrs.get("identity") == self.identity else "changed"
        if self._begun_file.exists():
            return "interrupted"
        return "foreign" if self.path.exists() else "missing"

    @property
    def failure(self) -> str | None:
        """The sentence of the last failure, if the run has not succeeded since."""
        try:
            return self.failure_file.read_text().partition("\n")[0]
        except FileNotFoundError:
            return None

    @property
    def failure_file(self) -> Path:
        return self._beside("failure.txt")

    def changes(self) -> list[str]:
        """How the declaration differs from the one whose store is there."""
        return changes(self.attrs.get("declaration"), self.declaration)

    def aside(self) -> Path:
        """Where a store of another declaration is put: the first free name."""
        names = (self._beside(f"replaced-{number}") for number in count(1))
        return next(name for name in names if not name.exists())

    @property
    def resumable(self) -> bool:
        """Whether what is there was begun by the same declaration, which can go on with it."""
        if not isinstance(self.run, ResumableRun) or self.state != "interrupted":
            return False
        try:
            begun = json.loads(self._begun_file.read_text())
        except ValueError:
            return False
        return bool(begun.get("declaration") == self.declaration and begun["seed"] == self.seed)

    @property
    def checkpointed(self) -> bool:
        """Whether it would go on from a step after its first."""
        return self.resumable and self._beside("checkpoint").exists()

    def begin(self) -> dict[str, str] | None:
        """Make the path free, or fit to go on, and note that the run has begun.

        Returns where it comes from; None if another process has made it whole meanwhile.
        """
        if self.kept:
            raise ValueError(f"{self.path} is where results are kept; choose another --out")
        if self.state == "foreign":
            raise ValueError(f"{self.path} was not made by an experiment; choose another --out")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock.take(self.path)  # refuses while another process writes here
        try:
            state = self.state
            if state == "whole":
                return None
            if state == "changed":
                self.path.rename(self.aside())
            if not (self.resumable and self.path.exists()):
                self._forget()
                if self.path.exists():
                    shutil.rmtree(self.path)
            came_from = origin(torch.device("cpu"))
            begun = {**came_from, "declaration": self.declaration, "seed": self.seed}
            replace_file(self._begun_file, json.dumps(begun, indent=1).encode(), durable=False)
        finally:
            lock.release()
        return came_from

    def finish(self, came_from: dict[str, str], *, seconds: float) -> None:
        """Declare the store whole. Where it says itself what it comes from, that stays."""
        if not self.path.exists():
            raise ValueError(f"{type(self.run).__qualname__}.execute wrote no store at {self.path}")
        with store.Writer.resume(self.path) as writer:
            writer.set_attrs(
                {
                    **came_from,
                    **{name: value for name, value in writer.attrs.items() if name in came_from},
                    "declaration": self.declaration,
                    "seed": self.seed,
                    "identity": self.identity,
                    # What was measured in several lives is longer than the last of them.
                    "wall_seconds": max(seconds, writer.attrs.get("wall_seconds", 0.0)),
                    "whole": True,
                }
            )
        self._forget()
        self._begun_file.unlink(missing_ok=True)
        self.failure_file.unlink(missing_ok=True)

    def fail(self, sentence: str, trace: str = "") -> None:
        """Keep what went wrong beside what was stored until then."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = f"{' '.join(sentence.split())}\n\n{trace}"
        replace_file(self.failure_file, text.encode(), durable=False)

    def _forget(self) -> None:
        if isinstance(self.run, ResumableRun):
            self.run.forget(self.path)

    @property
    def _begun_file(self) -> Path:
        return self._beside("begun.json")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")


def stored_runs(
    experiment: Experiment, out: Path, *, seeds: tuple[int, ...] | None = None
) -> list[StoredRun]:
    """All runs of an experiment, or those of `seeds`, in the order they are started."""
    kept = is_results(out) and experiment.scale == "paper"

    def path(name: str, seed: int) -> Path:
        if kept:
            return kept_path(out, experiment.name, name, seed)
        return experiment.folder(out) / name / f"seed-{seed}"

    return [
        StoredRun(name, seed, run, path(name, seed))
        for name, run in experiment.runs.items()
        for seed in (experiment.seeds if seeds is None else seeds)
    ]
