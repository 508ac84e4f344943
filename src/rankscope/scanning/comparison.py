"""Remarks on a series: matrices that come and go, other shapes, checkpoints that are equal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from rankscope.scanning.results import CheckpointScan

Key = tuple[tuple[str, int, int, float | None], ...]


def notes_on(scans: Sequence[CheckpointScan]) -> Iterator[str]:
    """Yield what is odd about each checkpoint, alone and beside those before it."""
    yield from scans[0].notes
    earlier = {_key(scans[0]): [scans[0]]}
    for before, after in pairwise(scans):
        yield from after.notes
        yield from differences(before, after)
        alike = earlier.setdefault(_key(after), [])
        if (
            equal_scan := next((scan for scan in alike if _is_same(scan, after)), None)
        ) is not None:
            yield f"step {after.step} holds the same weights as step {equal_scan.step}"
        alike.append(after)


def differences(before: CheckpointScan, after: CheckpointScan) -> Iterator[str]:
    """Yield sentences on matrices that only one of two has, or that have other shapes."""
    shapes = {matrix.name: (matrix.m, matrix.n) for matrix in before.matrices}
    now = {matrix.name: (matrix.m, matrix.n) for matrix in after.matrices}
    lost = [name for name in shapes if name not in now]
    new = [name for name in now if name not in shapes]
    reshaped = [name for name in now if name in shapes and now[name] != shapes[name]]
    for names, difference in (
        (lost, "lacks"),
        (new, "has in addition"),
        (reshaped, "has in another shape"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"step {after.step} {difference}: {names[0]}{more}"


def _key(scan: CheckpointScan) -> Key:
    """Return names, shapes and norms, which two equal checkpoints share; NaN as None."""
    return tuple((m.name, m.m, m.n, None if np.isnan(m.norm) else m.norm) for m in scan.matrices)


def _is_same(before: CheckpointScan, after: CheckpointScan) -> bool:
    """Tell whether spectra are equal, as far as a run stores them."""
    pairs = zip(before.matrices, after.matrices, strict=True)
    return all(
        np.array_equal(one.S.astype(np.float32), other.S.astype(np.float32), equal_nan=True)
        for one, other in pairs
    )
