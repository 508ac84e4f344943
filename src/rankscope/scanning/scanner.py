"""Scan of checkpoints and series, one portion of tensors at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.checkpoints.series import Member, given_in_order, series_in
from rankscope.matrices import Views, views
from rankscope.scanning.adapters import changes_in, matrices_of, open_scanned
from rankscope.scanning.comparison import notes_on
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.measuring import NOT_IN_BASE, Base, Measured, Options, measure, sizes_of
from rankscope.scanning.portions import needs_of, planned, portions, read_portion
from rankscope.scanning.progress import Progress, Silent
from rankscope.scanning.results import CheckpointScan, Scan
from rankscope.scanning.tasks import Task, Workers

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
        if workers is None:
            _require(options.device)
        self._options = options
        self._include = [include] if isinstance(include, str) else include and list(include)
        self._exclude = [exclude] if isinstance(exclude, str) else exclude and list(exclude)
        self._progress = progress or Silent()
        self._workers = workers
        self._base_name = None if base is None else str(base)
        self._base: Base | None = None
        self._problems: tuple[str, ...] = ()  # of the base
        if base is not None:
            opened = open_checkpoint(base)
            self._base, self._problems = Base(views(opened)), opened.problems

    def run(
        self,
        members: Sequence[Member],
        left_out: Sequence[str] = (),
        *,
        finished: Finished | None = None,
        earlier: Sequence[CheckpointScan] = (),
    ) -> Scan:
        """Return the scans of the members and of `earlier` ones, which are not scanned again.

        `finished` is called with each scan as soon as it is there. ValueError if there is none.
        """
        scans = list(earlier)
        problems = [f"base: {problem}" for problem in self._problems]
        for number, job in enumerate(self._jobs(members), start=1):
            job.remaining = len(members) - number
            try:
                result = self._scanned(job)
            except ValueError as refusal:
                if len(members) == 1 and not earlier:
                    raise
                problems.append(f"step {job.member.step} is left out: {refusal}")
                continue
            scans.append(result)
            if finished is not None:
                finished(result)
        if not scans:
            raise ValueError(problems[-1])
        scans.sort(key=lambda scan: scan.step)
        for scan in scans:
            place = f"step {scan.step}: " if len(scans) > 1 else ""
            problems += [f"{place}{problem}" for problem in scan.problems]
        notes = (*left_out, *notes_on(scans))
        return Scan(tuple(scans), self._base_name, tuple(problems), notes)

    def again(self, matrices: Views, names: Sequence[str]) -> Measured:
        """Measure some matrices of a checkpoint that was scanned before."""
        parameters = dict.fromkeys(matrices.readings[name].parameter for name in names)
        return measure(read_portion(matrices, tuple(parameters)), self._options, self._base)

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
            checkpoint = open_scanned(member.path)
            matrices = matrices_of(checkpoint, include=self._include, exclude=self._exclude)
            if self._base is not None and changes_in(matrices):
                raise ValueError(
                    f"{checkpoint.source} holds an adapter, which is a change already; scan it "
                    f"alone, or type rankscope lora {member.path} --base {self._base_name}"
                )
            if not matrices:
                raise ValueError(f"{checkpoint.source} has no matrix to scan: {_why(matrices)}")
        except ValueError as refusal:
            return Job(member, refusal=refusal)
        needs = needs_of(checkpoint, with_base=self._base is not None)
        plan = planned(matrices, needs)
        job = Job(member, checkpoint, matrices, sizes_of(checkpoint), needs, plan)
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
        for portion in portions(matrices, job.plan, job.needs):
            measured = measure(portion, self._options, self._base)
            del portion  # a large tensor that is read next needs the room
            yield measured

    def _scanned(self, job: "Job") -> CheckpointScan:
        """Return the scan of one checkpoint."""
        if job.refusal is not None or job.checkpoint is None or job.matrices is None:
            raise job.refusal or ValueError(f"{job.member.path} cannot be read")
        member, matrices, sizes = job.member, job.matrices, job.sizes
        names = [name for names in job.plan for name in names]
        size = sum(sizes.get(name, 0) for name in names)
        self._progress.start(member.path, len(names), size, remaining=job.remaining)
        results: dict[str, MatrixScan] = {}
        problems = list(job.checkpoint.problems)
        for portion, measured in zip(job.plan, self._measured(job, matrices), strict=True):
            problems += measured.refused
            results |= {matrix.name: matrix for matrix in measured.matrices}
            self._progress.advance(len(portion), sum(sizes.get(name, 0) for name in portion))
        self._progress.finish()
        if not results:
            raise ValueError(problems[-1])
        if self._base is not None and all(m.note == NOT_IN_BASE for m in results.values()):
            first = next(iter(self._base.views.readings), None)
            raise ValueError(
                f"{job.checkpoint.source} and the base {self._base_name} have no matrix in common; "
                f"the first are {next(iter(results))!r} and {first!r}"
            )
        return CheckpointScan.of(member.step, job.checkpoint, matrices, results, problems)


@dataclass
class Job:
    """One checkpoint that is opened, and what workers were sent of it; or why it is refused.

    sizes, needs: bytes on disk and in memory by tensor.
    remaining: number of checkpoints after it.
    """

    member: Member
    checkpoint: Checkpoint | None = None
    matrices: Views | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    plan: list[tuple[str, ...]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    refusal: ValueError | None = None
    remaining: int = 0


def _require(device: torch.device) -> None:
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for, but torch sees none; leave it out")


def _why(matrices: Views) -> str:
    """Say why a checkpoint has no matrices, by the first tensor that is not read."""
    lines = [line for line in matrices.coverage if not line.matrices]
    lines.sort(key=lambda line: line.status not in ("not read", "excluded"))
    return f"{lines[0].tensor}: {lines[0].how}" if lines else "no tensor has two axes"
