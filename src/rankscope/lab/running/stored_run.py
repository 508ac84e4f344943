"""One run of an experiment on disk: its state and its files.

    <out>/<paper>/<experiment>/<scale>/<run>/seed-0                the store
                                             seed-0.begun.json     while it is not whole
                                             seed-0.checkpoint     a resumable run continues here
                                             seed-0.failure.txt    the last failure
                                             seed-0.replaced-1     a store of another declaration

In an archive a run of scale paper is one file that only `rankscope results keep` writes:
<archive>/<paper>/<experiment>/<run>/seed-0.zarr.zip

A store counts once its attributes say `whole`, which is written last. Only unfinished stores that
a begun file marks as ours are ever removed.
"""

import json
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch

from rankscope import store
from rankscope.lab.archive.archived_files import archive_path, is_archive
from rankscope.lab.experiment import Experiment
from rankscope.lab.running.identity import changes, declaration, identity_of
from rankscope.lab.running.run_key import ResumableRun, Run, RunKey, with_experiment
from rankscope.provenance import origin
from rankscope.store.archive import SUFFIX, archive_attrs
from rankscope.store.creation import read_contents
from rankscope.store.files import replace_file
from rankscope.store.lock import Lock

# changed: whole, but made by another declaration. interrupted: begun and not finished, or failed.
# foreign: not made by an experiment.
State = Literal["missing", "whole", "changed", "interrupted", "foreign"]


@dataclass(frozen=True)
class StoredRun:
    """A declared run with one seed, and the path of its store."""

    key: RunKey
    seed: int
    run: Run
    path: Path

    @property
    def title(self) -> str:
        """Title as people read it; names the experiment if the network does not imply it."""
        title = with_experiment(self.key.title, self.key.experiment, self.key.network)
        return f"{title}, seed {self.seed}"

    @cached_property
    def declaration(self) -> Any:
        return declaration(self.run)

    @cached_property
    def identity(self) -> str:
        return identity_of(self.declaration, self.seed)

    @property
    def is_archived(self) -> bool:
        """Whether the run is one file of an archive."""
        return self.path.name.endswith(SUFFIX)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the store; {} where there is none."""
        if self.is_archived:
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
        """The last failure in one line, or None if the run has succeeded since."""
        try:
            return self.failure_file.read_text().partition("\n")[0]
        except FileNotFoundError:
            return None

    @property
    def failure_file(self) -> Path:
        return self._beside("failure.txt")

    def changes(self) -> list[str]:
        """Differences between the stored declaration and this one."""
        return changes(self.attrs.get("declaration"), self.declaration)

    def free_replaced_path(self) -> Path:
        """The first free name for a store of another declaration."""
        names = (self._beside(f"replaced-{number}") for number in count(1))
        return next(name for name in names if not name.exists())

    @property
    def resumable(self) -> bool:
        """Whether the same declaration began the files on disk and can continue them."""
        if not isinstance(self.run, ResumableRun) or self.state != "interrupted":
            return False
        try:
            begun = json.loads(self._begun_file.read_text())
        except ValueError:
            return False
        return bool(begun.get("declaration") == self.declaration and begun["seed"] == self.seed)

    @property
    def checkpointed(self) -> bool:
        """Whether the run would continue from a later step than its first."""
        return self.resumable and self._beside("checkpoint").exists()

    def begin(self) -> dict[str, str] | None:
        """Clear the path, or prepare it to continue, and note that the run has begun.

        Return the run's provenance; None if another process has finished it meanwhile.
        """
        if self.is_archived:
            raise ValueError(f"{self.path} is in an archive; choose another --out")
        if self.state == "foreign":
            raise ValueError(f"{self.path} was not made by an experiment; choose another --out")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock.take(self.path)  # refuses while another process writes here
        try:
            state = self.state
            if state == "whole":
                return None
            if state == "changed":
                self.path.rename(self.free_replaced_path())
            if not (self.resumable and self.path.exists()):
                self._forget()
                if self.path.exists():
                    shutil.rmtree(self.path)
            provenance = origin(torch.device("cpu"))
            begun = {**provenance, "declaration": self.declaration, "seed": self.seed}
            replace_file(self._begun_file, json.dumps(begun, indent=1).encode(), durable=False)
        finally:
            lock.release()
        return provenance

    def finish(self, provenance: dict[str, str], *, seconds: float) -> None:
        """Mark the store as whole. Provenance that the run has stored itself stays."""
        if not self.path.exists():
            raise ValueError(f"{type(self.run).__qualname__}.execute wrote no store at {self.path}")
        with store.Writer.resume(self.path) as writer:
            writer.set_attrs(
                {
                    **provenance,
                    **{name: value for name, value in writer.attrs.items() if name in provenance},
                    "declaration": self.declaration,
                    "seed": self.seed,
                    "identity": self.identity,
                    # A run resumed several times has measured its own total.
                    "wall_seconds": max(seconds, writer.attrs.get("wall_seconds", 0.0)),
                    "whole": True,
                }
            )
        self._forget()
        self._begun_file.unlink(missing_ok=True)
        self.failure_file.unlink(missing_ok=True)

    def fail(self, sentence: str, trace: str = "") -> None:
        """Write the failure beside what was stored until then."""
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
    """Return the runs of an experiment with its seeds, or with `seeds`, in declared order."""
    folders, suffix = _folders(experiment, out)
    return [
        StoredRun(key, seed, run, folders[key] / f"seed-{seed}{suffix}")
        for key, run in experiment.runs.items()
        for seed in (experiment.seeds if seeds is None else seeds)
    ]


def runs_on_disk(experiment: Experiment, out: Path) -> list[StoredRun]:
    """Return the runs of any seed that have a store below `out`."""
    folders, suffix = _folders(experiment, out)
    pattern = re.compile(rf"seed-(\d+){re.escape(suffix)}")
    files = [path.name for folder in folders.values() for path in folder.glob("seed-*")]
    seeds = sorted({int(match[1]) for name in files if (match := pattern.fullmatch(name))})
    runs = stored_runs(experiment, out, seeds=tuple(seeds))
    return [run for run in runs if run.path.exists()]


def _folders(experiment: Experiment, out: Path) -> tuple[dict[RunKey, Path], str]:
    """The folder of every run, and the suffix of its seeds: an archive has files."""
    if is_archive(out):
        return {key: archive_path(out, key, 0).parent for key in experiment.runs}, SUFFIX
    folder = experiment.folder(out)
    return {key: folder / key.name for key in experiment.runs}, ""
