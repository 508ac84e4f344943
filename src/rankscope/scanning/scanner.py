"""Scan of checkpoints and series, one portion of tensors at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.checkpoints.series import Member, given_in_order, series_in
from rankscope.matrices import Coverage, Covered, Views, views
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.measuring import Base, Options, measure, sizes_of
from rankscope.scanning.portions import planned, portions
from rankscope.scanning.progress import Progress, Silent
from rankscope.scanning.results import CheckpointScan, Scan
from rankscope.scanning.tasks import Measured, Task, Workers

Patterns = str | Iterable[str] | None
Finished = Callable[[CheckpointScan], None]


def scan(
    *paths: str | Path,
    base: str | Path | None = None,
    pattern: str | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    leading: int | None = None,
    device: str | torch.device = "cpu",
) -> Scan:
    """Return the spectra, coverage and problems of every checkpoint at the paths.

    A path is a checkpoint, or a folder of checkpoints in step order, such as step1000, epoch_0100
    or checkpoint-500. One that cannot be read is named in `problems`, and the rest goes on.

    Args:
        base: a checkpoint; the table then describes the changes since it.
        pattern: which files or folders of a folder belong to the series, such as "checkpoint-*".
        include, exclude: patterns on matrix names, such as "*.mlp.*".
        leading: number of singular values; 0 for norms only. The default is all.
        device: where matrices are decomposed.
    """
    members, left_out = members_of([str(path) for path in paths], pattern=pattern)
    options = Options(torch.device(device), leading)
    scanner = Scanner(options, base=base, include=include, exclude=exclude)
    return scanner.run(members, left_out)


def members_of(paths: Sequence[str], *, pattern: str | None) -> tuple[list[Member], list[str]]:
    """Return the checkpoints that the paths name, by step, and what is left out."""
    if not paths:
        raise ValueError("give the path of a checkpoint, or of a folder of checkpoints")
    if len(paths) == 1 and Path(paths[0]).expanduser().is_dir():
        return series_in(Path(paths[0]).expanduser(), pattern=pattern)
    if pattern is not None:
        raise ValueError("pattern chooses within one folder; give that folder alone")
    return given_in_order(paths), []


class Scanner:
    """Scans one checkpoint after another with the same options."""

    def __init__(
        self,
        options: Options,
        *,
        base: str | Path | None = None,
        include: Patterns = None,
        exclude: Patterns = None,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._options = options
        self._include = [include] if isinstance(include, str) else include and list(include)
        self._exclude = [exclude] if isinstance(exclude, str) else exclude and list(exclude)
        self._progress = progress or Silent()
        self._workers = workers
        self._base_name = None if base is None else str(base)
        self._base = None if base is None else Base(views(open_checkpoint(base)))

    def run(
        self,
        members: Sequence[Member],
        left_out: Sequence[str] = (),
        *,
        finished: Finished | None = None,
    ) -> Scan:
        """Return the scans of the members; `finished` is called with each as soon as it is there.

        ValueError if none of them can be scanned.
        """
        scans: list[CheckpointScan] = []
        problems: list[str] = []
        notes = list(left_out)
        for job in self._jobs(members):
            try:
                result = self._scanned(job)
            except ValueError as refusal:
                if len(members) == 1:
                    raise
                problems.append(f"step {job.member.step} is left out: {refusal}")
                continue
            notes += [*result.notes, *(compared(scans[-1], result) if scans else ())]
            problems += result.problems
            scans.append(result)
            if finished is not None:
                finished(result)
        if not scans:
            raise ValueError(problems[-1])
        return Scan(tuple(scans), self._base_name, tuple(problems), tuple(notes))

    def _jobs(self, members: Sequence[Member]) -> Iterator["Job"]:
        """Yield the checkpoints in order; on a cluster, with the work on the next ones sent."""
        ahead: deque[Job] = deque()
        for member in members:
            ahead.append(self._job(member))
            while (
                self._workers is None or sum(len(job.sent) for job in ahead) > self._workers.width
            ):
                yield ahead.popleft()
                if not ahead:
                    break
        yield from ahead

    def _job(self, member: Member) -> "Job":
        try:
            checkpoint = open_checkpoint(member.path)
            matrices = views(checkpoint, include=self._include, exclude=self._exclude)
            if not matrices:
                raise ValueError(f"{checkpoint.source} has no matrix to scan: {_why(matrices)}")
        except ValueError as refusal:
            return Job(member, refusal=refusal)
        sizes = sizes_of(checkpoint)
        job = Job(member, checkpoint, matrices, sizes, planned(matrices, sizes))
        if self._workers is not None:
            job.sent += [self._workers.submit(self._task(member, names)) for names in job.plan]
        return job

    def _task(self, member: Member, names: tuple[str, ...]) -> Task:
        patterns = (None if p is None else tuple(p) for p in (self._include, self._exclude))
        return Task(member.path, names, self._options, self._base_name, *patterns)

    def _measured(self, job: "Job", matrices: Views) -> Iterator[Measured]:
        """Yield what is measured of each portion, here or by the workers."""
        if self._workers is not None:
            yield from map(self._workers.result, job.sent)
            return
        for portion in portions(matrices, job.plan, job.sizes):
            measured = tuple(measure(portion, self._options, self._base))
            refused = portion.refused
            del portion  # a large tensor that is read next needs the room
            yield Measured(measured, refused)

    def _scanned(self, job: "Job") -> CheckpointScan:
        """Return the scan of one checkpoint."""
        if job.refusal is not None or job.checkpoint is None or job.matrices is None:
            raise job.refusal or ValueError(f"{job.member.path} cannot be read")
        member, matrices, sizes = job.member, job.matrices, job.sizes
        names = [name for names in job.plan for name in names]
        self._progress.start(member.path, len(names), sum(sizes.get(name, 0) for name in names))
        results: dict[str, MatrixScan] = {}
        problems = list(job.checkpoint.problems)
        for portion, measured in zip(job.plan, self._measured(job, matrices), strict=True):
            problems += measured.refused
            results |= {matrix.name: matrix for matrix in measured.matrices}
            self._progress.advance(len(portion), sum(sizes.get(name, 0) for name in portion))
        self._progress.finish()
        if not results:
            raise ValueError(problems[-1])
        ordered = tuple(results[name] for name in matrices if name in results)
        odd = [matrix.name for matrix in ordered if not np.isfinite(matrix.norm)]
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        notes = [f"step {member.step} has NaN or Inf in {odd[0]}{more}"] if odd else []
        coverage = _coverage(matrices, results)
        source = job.checkpoint.source
        return CheckpointScan(member.step, source, ordered, coverage, tuple(problems), tuple(notes))


@dataclass
class Job:
    """One checkpoint that is opened, and what workers were sent of it; or why it is refused."""

    member: Member
    checkpoint: Checkpoint | None = None
    matrices: Views | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    plan: list[tuple[str, ...]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    refusal: ValueError | None = None


def _coverage(matrices: Views, results: dict[str, MatrixScan]) -> Coverage:
    """Return the coverage, with matrices that could not be read after all as such."""
    lines: list[Covered] = []
    for line in matrices.coverage:
        lost = line.matrices and not set(line.matrices) & results.keys()
        if lost and line.status != "vector":
            line = replace(line, status="not read", how="could not be read", matrices=())
        lines.append(line)
    return Coverage(tuple(lines))


def _why(matrices: Views) -> str:
    """Say why a checkpoint has no matrices, by the first tensor that is not read."""
    reasons = [f"{line.tensor}: {line.how}" for line in matrices.coverage if not line.matrices]
    return reasons[0] if reasons else "no tensor has two axes"


def compared(before: CheckpointScan, after: CheckpointScan) -> list[str]:
    """Return sentences on what two checkpoints of a series should not have in common, or should."""
    shapes = {matrix.name: (matrix.m, matrix.n) for matrix in before.matrices}
    now = {matrix.name: (matrix.m, matrix.n) for matrix in after.matrices}
    sentences = []
    lost = [name for name in shapes if name not in now]
    new = [name for name in now if name not in shapes]
    other = [name for name in now if name in shapes and now[name] != shapes[name]]
    for names, what in ((lost, "lacks"), (new, "has in addition"), (other, "has in another shape")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            sentences.append(f"step {after.step} {what}: {names[0]}{more}")
    spectra = {matrix.name: matrix for matrix in before.matrices}
    if shapes == now and all(
        m.norm == spectra[m.name].norm and np.array_equal(m.S, spectra[m.name].S, equal_nan=True)
        for m in after.matrices
    ):
        sentences.append(f"step {after.step} holds the same weights as step {before.step}")
    return sentences
