"""Finding the runs in folders: by their root files, without following links out of the folder."""

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope.store.archive import SUFFIX
from rankscope.store.lock import lock_path
from rankscope.store.metadata import ROOT
from rankscope.store.names import DROPPED

MOST_RUNS = 5_000
MOST_ENTRIES = 200_000  # files and folders that one search looks at
DEEPEST = 16
RECENT_SECONDS = 600  # a lock of another machine counts as held if the run changed since

State = Literal["running", "done", "interrupted"]


@dataclass(frozen=True)
class Place:
    """One run that lies in a folder given on the command line.

    key: names it in URLs. path: as it was reached. root: the given folder, without links.
    name: the path below that folder. folder: the folder as it was given.
    """

    key: str
    path: Path
    root: Path
    name: str
    folder: str

    @property
    def is_archive(self) -> bool:
        return self.path.name.endswith(SUFFIX)

    @property
    def commit(self) -> str:
        """Name of the state of its files, which changes with every snapshot; "" if it is gone."""
        try:
            status = os.stat(self.path if self.is_archive else self.path / ROOT)
        except OSError:
            return ""
        return f"{status.st_mtime_ns:x}.{status.st_size:x}.{status.st_ino:x}"

    @property
    def state(self) -> State:
        """Whether somebody writes it, or its writer ended without closing it."""
        if self.is_archive:
            return "done"
        lock = lock_path(self.path)
        if lock.exists():
            return "running" if _is_held(lock, self.path) else "interrupted"
        begun = self.path.with_name(f"{self.path.name}.begun.json")
        return "interrupted" if begun.exists() else "done"


@dataclass(frozen=True)
class Search:
    """Result of a search of the folders. skipped: runs beyond the most that are listed."""

    places: dict[str, Place]
    skipped: int


def find_runs(folders: Sequence[Path]) -> Search:
    """Return the runs in the folders; a folder may be a run itself."""
    places: dict[str, Place] = {}
    skipped = 0
    for folder in folders:
        root = folder.resolve()
        parent = root.parent if _is_run(root) else root
        for path in _runs_below(root):
            key = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
            if key in places:
                continue
            if len(places) >= MOST_RUNS:
                skipped += 1
                continue
            name = path.relative_to(parent).as_posix().removesuffix(SUFFIX)
            places[key] = Place(key, path, root, name, str(folder))
    return Search(places, skipped)


def _runs_below(root: Path) -> Iterator[Path]:
    """Yield runs by name. The folders of a run are not searched, but for what it dropped."""
    looked = 0
    waiting = [(root, 0)]
    while waiting:
        path, depth = waiting.pop()
        if _is_run(path):
            yield path
            continue
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in entries:
            looked += 1
            if entry.name.startswith(".") or entry.name == DROPPED or entry.is_symlink():
                continue
            if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
                folders.append((Path(entry.path), depth + 1))
        if looked > MOST_ENTRIES:
            return
        waiting += reversed(folders)


def _is_run(path: Path) -> bool:
    if path.name.endswith(SUFFIX):
        return path.is_file()
    return (path / ROOT).is_file()


def _is_held(lock: Path, run: Path) -> bool:
    """Return whether the process that wrote the lock's file lives; no lock is taken to find out."""
    try:
        name = json.loads(lock.read_bytes()[:4096])
        pid, host = int(name["pid"]), str(name["host"])
    except (OSError, ValueError, KeyError, TypeError):
        pid, host = 0, ""
    if host == socket.gethostname() and pid > 0:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            return True
        return True
    try:
        return time.time() - os.stat(run / ROOT).st_mtime < RECENT_SECONDS
    except OSError:
        return False
