"""Work of `rankscope scan`: a scan with progress, stored as it goes, continued if it was cut."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints.series import Member
from rankscope.matrices import Views, views
from rankscope.scanning.measuring import Options
from rankscope.scanning.progress import Lines
from rankscope.scanning.results import CheckpointScan, Scan
from rankscope.scanning.scanner import Scanner, members_of
from rankscope.scanning.storing import StoredScan, stored_matrices
from rankscope.scanning.tasks import Workers


def run_scan(
    paths: Sequence[str],
    *,
    base: str | None = None,
    out: Path | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    pattern: str | None = None,
    leading: int | None = None,
    device: str = "cpu",
    on: Literal["here", "ray"] = "here",
) -> Scan:
    """Scan the checkpoints at the paths and write them to the run `out`, if it is given."""
    with _workers(on) as workers:
        members, left_out = members_of(paths, pattern=pattern)
        options = Options(torch.device(device), leading)
        scanner = Scanner(
            options, base=base, include=include, exclude=exclude, progress=Lines(), workers=workers
        )
        if out is None:
            return scanner.run(members, left_out)
        settings = {"base": base, "include": include, "exclude": exclude, "leading": leading}
        first = _first_readable(members, include, exclude)
        with StoredScan(out, first, settings) as run:
            earlier = [
                _stored(out, member, include, exclude)
                for member in members
                if member.step in run.steps
            ]
            remaining = [member for member in members if member.step not in run.steps]
            if not remaining:
                return Scan(tuple(earlier), base, notes=tuple(left_out))
            result = scanner.run(remaining, left_out, finished=run.append)
        everything = sorted((*earlier, *result.checkpoints), key=lambda scan: scan.step)
        return replace(result, checkpoints=tuple(everything))


def _first_readable(
    members: Sequence[Member], include: Sequence[str] | None, exclude: Sequence[str] | None
) -> Views:
    """Return the matrices of the first checkpoint that can be read, which lay out the run."""
    for number, member in enumerate(members):
        try:
            return views(open_checkpoint(member.path), include=include, exclude=exclude)
        except ValueError:
            if number + 1 == len(members):
                raise
    raise ValueError("there is no checkpoint to scan")


def _workers(on: Literal["here", "ray"]) -> AbstractContextManager[Workers | None]:
    if on == "here":
        return nullcontext()
    from rankscope.scanning.cluster import cluster

    return cluster()


def _stored(
    out: Path, member: Member, include: Sequence[str] | None, exclude: Sequence[str] | None
) -> CheckpointScan:
    """Return a checkpoint that an earlier scan has stored."""
    coverage = views(open_checkpoint(member.path), include=include, exclude=exclude).coverage
    return CheckpointScan(member.step, member.path, stored_matrices(out, member.step), coverage)
