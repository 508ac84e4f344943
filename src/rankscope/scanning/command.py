"""Work of `rankscope scan`: a scan with progress, stored as it goes, continued if it was cut."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints.series import Member
from rankscope.matrices import views
from rankscope.scanning.measuring import Options
from rankscope.scanning.progress import Lines
from rankscope.scanning.results import CheckpointScan, Scan
from rankscope.scanning.scanner import Scanner, members_of
from rankscope.scanning.storing import StoredScan, stored_matrices


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
) -> Scan:
    """Scan the checkpoints at the paths and write them to the run `out`, if it is given."""
    members, left_out = members_of(paths, pattern=pattern)
    options = Options(torch.device(device), leading)
    scanner = Scanner(options, base=base, include=include, exclude=exclude, progress=Lines())
    if out is None:
        return scanner.run(members, left_out)
    settings = {"base": base, "include": include, "exclude": exclude, "leading": leading}
    first = views(open_checkpoint(members[0].path), include=include, exclude=exclude)
    with StoredScan(out, first, settings) as run:
        earlier = [_stored(out, member) for member in members if member.step in run.steps]
        remaining = [member for member in members if member.step not in run.steps]
        if not remaining:
            return Scan(tuple(earlier), base, notes=tuple(left_out))
        result = scanner.run(remaining, left_out, finished=run.append)
    everything = sorted((*earlier, *result.checkpoints), key=lambda scan: scan.step)
    return replace(result, checkpoints=tuple(everything))


def _stored(out: Path, member: Member) -> CheckpointScan:
    """Return a checkpoint that an earlier scan has stored."""
    coverage = views(open_checkpoint(member.path)).coverage
    return CheckpointScan(member.step, member.path, stored_matrices(out, member.step), coverage)
