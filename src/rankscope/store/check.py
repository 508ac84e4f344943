"""Check of stored runs: every chunk is read, and what cannot be read is named."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.store.archive import SUFFIX, archive_source
from rankscope.store.chunk import Damage
from rankscope.store.metadata import ArrayFormat
from rankscope.store.names import DROPPED
from rankscope.store.reader import is_run
from rankscope.store.source import Folder
from rankscope.store.stored_run import DamagedChunk, StoredArray, StoredRun

MOST_NAMED = 100  # damaged files of one array


@dataclass
class Report:
    """Result of the check of one run: a line for each damage, and the number of chunks read.

    checked: the run has checksums. An archive without has those of the zip.
    """

    path: Path
    damage: list[str] = field(default_factory=list)
    chunks: int = 0
    checked: bool = True

    def lines(self) -> list[str]:
        """Return what to print."""
        lines = [f"{self.path}: {line}" for line in self.damage]
        if not self.checked and self.path.is_dir():
            lines.append(
                f"{self.path}: it has no checksums, since an earlier version wrote it; wrong "
                "numbers would not be noticed"
            )
        if not self.damage:
            lines.append(f"{self.path}: {self.chunks} chunks read, no damage")
        return lines


def stored_runs(path: Path) -> Iterator[Path]:
    """Yield the runs at and below `path`: folders, archives, and rows that a run dropped."""
    if path.is_file() or path.name.endswith(SUFFIX):
        yield path
        return
    if is_run(path):
        yield path
        path = path / DROPPED
        if not path.is_dir():
            return
    for child in sorted(path.iterdir()):
        if child.is_symlink() and child.is_dir():
            continue  # it may lead back here
        if child.is_dir() or child.name.endswith(SUFFIX):
            yield from stored_runs(child)


def check_run(path: Path) -> Report:
    """Read every chunk of the run at `path`, a folder or an archive."""
    report = Report(path)
    try:
        if path.is_dir():
            _read_all(StoredRun.at(Folder(path)), report)
        else:
            with archive_source(path) as source:
                _read_all(StoredRun.at(source, lenient=True), report)
    except Damage as damage:
        report.damage.append(f"nothing can be read: {damage}")
    except ValueError as mistake:
        report.damage.append(str(mistake))
    return report


def _read_all(run: StoredRun, report: Report) -> None:
    report.checked = run.root.checked
    for array in run.root.arrays.values():
        stored = StoredArray(run, array)
        damaged: dict[tuple[str, str], list[range]] = {}
        counts = (-(-n // m) for n, m in zip(array.shape, array.chunk.shape, strict=True))
        for index in itertools.product(*map(range, counts)):
            try:
                stored.chunk(index)
                report.chunks += 1
            except DamagedChunk as damage:
                damaged.setdefault((damage.file, damage.why), []).append(damage.rows)
                if len(damaged) == MOST_NAMED:
                    report.damage.append(f"{array.name!r} is damaged in {MOST_NAMED} files or more")
                    break
        stored.close()
        for (file, why), rows in damaged.items():
            where = _label(run, array, rows)
            report.damage.append(f"{array.name!r}{where} is damaged ({file}): {why}")


def _label(run: StoredRun, array: ArrayFormat, rows: list[range]) -> str:
    """Return the rows as positions along their axis, if these can be read."""
    if not array.dims or array.dims[0] == array.name or not rows[0]:
        return ""
    first, last = rows[0][0], rows[-1][-1]
    axis = array.dims[0]
    try:
        first, last = run.read(axis, first).item(), run.read(axis, last).item()
    except (ValueError, KeyError):
        axis = f"{axis} number"
    return f" of {axis} {first}" + (f" to {last}" if last != first else "")
