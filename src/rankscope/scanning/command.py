"""Work of `rankscope scan`: a scan with progress, stored as it goes, continued if it was cut."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rankscope.checkpoints.series import Member
from rankscope.extras import needed_by
from rankscope.matrices import Coverage, Views
from rankscope.scanning.adapters import matrices_of, open_scanned
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
    if on == "ray" and device != "cpu":
        raise ValueError("a cluster measures on its CPU cores; leave out --device or --on ray")
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
                _stored(out, member, scanner, include, exclude)
                for member in members
                if member.step in run.steps
            ]
            remaining = [member for member in members if member.step not in run.steps]
            return scanner.run(remaining, left_out, finished=run.append, earlier=earlier)


def _first_readable(
    members: Sequence[Member], include: Sequence[str] | None, exclude: Sequence[str] | None
) -> Views:
    """Return the matrices of the first checkpoint that can be read, which lay out the run."""
    for number, member in enumerate(members):
        try:
            return matrices_of(open_scanned(member.path), include=include, exclude=exclude)
        except ValueError:
            if number + 1 == len(members):
                raise
    raise ValueError("there is no checkpoint to scan")


def _workers(on: Literal["here", "ray"]) -> AbstractContextManager[Workers | None]:
    if on == "here":
        return nullcontext()
    with needed_by("ray as the place to scan"):
        from rankscope.scanning.cluster import cluster
    return cluster()


def _stored(
    out: Path,
    member: Member,
    scanner: Scanner,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> CheckpointScan:
    """Return a checkpoint that an earlier scan has stored, with what could not be read of it.

    Matrices for which the run has no room, as they came later or have other shapes, and those that
    are not finite or not in the base are measured again.
    """
    stored = {matrix.name: matrix for matrix in stored_matrices(out, member.step)}
    try:
        checkpoint = open_scanned(member.path)
        matrices = matrices_of(checkpoint, include=include, exclude=exclude)
    except ValueError as refusal:
        problem = f"it is stored, and cannot be read again: {refusal}"
        return CheckpointScan(
            member.step, member.path, tuple(stored.values()), Coverage(()), (problem,)
        )
    stored = {name: matrix for name, matrix in stored.items() if not np.isnan(matrix.size)}
    again = scanner.again(matrices, [name for name in matrices if name not in stored])
    stored |= {matrix.name: matrix for matrix in again.matrices if matrix.name not in stored}
    problems = (*checkpoint.problems, *again.refused)
    return CheckpointScan.of(member.step, checkpoint, matrices, stored, problems)
