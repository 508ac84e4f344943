"""Results of a scan: a spectrum per matrix, coverage and problems per checkpoint."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from rankscope import metrics
from rankscope.checkpoints import Checkpoint
from rankscope.matrices import Coverage, Covered, Views
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.outstanding import remarks

ENERGIES = (50, 90, 99)
COLUMNS = (
    *("step", "kind", "shape", "norm", "first_rank", "effective_rank", "stable_rank"),
    *(f"r{share}" for share in ENERGIES),
    *("tail_exponent", "change", "stands_out"),
)


@dataclass(frozen=True, eq=False)
class CheckpointScan:
    """All matrices of one checkpoint.

    problems: sentences on what could not be read.
    notes: sentences on what is odd about what was read.
    """

    step: int
    source: str
    matrices: tuple[MatrixScan, ...]
    coverage: Coverage
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        step: int,
        checkpoint: Checkpoint,
        views: Views,
        results: Mapping[str, MatrixScan],
        problems: Iterable[str],
    ) -> "CheckpointScan":
        """Return the scan of the matrices that could be read, in the order of the checkpoint."""
        matrices = tuple(results[name] for name in views if name in results)
        odd = [matrix.name for matrix in matrices if not np.isfinite(matrix.norm)]
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        notes = [f"step {step} has NaN or Inf in {odd[0]}{more}"] if odd else []
        coverage = _coverage(views, results)
        notes += checkpoint.notes
        return cls(step, checkpoint.source, matrices, coverage, tuple(problems), tuple(notes))


def _coverage(views: Views, results: Mapping[str, MatrixScan]) -> Coverage:
    """Return the coverage, with matrices that could not be read after all as such."""
    lines: list[Covered] = []
    for line in views.coverage:
        lost = line.matrices and not set(line.matrices) & results.keys()
        if lost and line.status != "vector":
            line = replace(line, status="not read", how="could not be read", matrices=())
        lines.append(line)
    return Coverage(tuple(lines))


@dataclass(frozen=True, eq=False)
class Scan:
    """Scans of one checkpoint or of a series, by step.

    base: where the changes are measured from; None if the weights themselves are scanned.
    problems: sentences on what could not be read, of the series and its checkpoints.
    notes: sentences on what is odd, such as NaN, two equal checkpoints, shapes that change.
    """

    checkpoints: tuple[CheckpointScan, ...]
    base: str | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def coverage(self) -> Coverage:
        """How every tensor of the last checkpoint was read."""
        return self.checkpoints[-1].coverage

    @property
    def title(self) -> str:
        """Title of a table: the checkpoint, its base, its place in a series."""
        last = self.checkpoints[-1]
        since = "" if self.base is None else f", change since {self.base}"
        if len(self.checkpoints) == 1:
            return f"{last.source}{since}"
        first = self.checkpoints[0].step
        return (
            f"{last.source}{since}: step {last.step}, last of {len(self.checkpoints)} checkpoints "
            f"since step {first}"
        )

    def last_table(self, *, sort: str | None = None) -> pd.DataFrame:
        """Return the table of the last checkpoint; of a series, with ranks at the first one too."""
        last = Scan(self.checkpoints[-1:], self.base)
        if len(self.checkpoints) == 1:
            return last.table(sort=sort)
        table = last.table()
        first = {row["matrix"]: row for row in _rows(self.checkpoints[0])}
        if "effective_rank" in table:
            ranks = [first.get(name, {}).get("effective_rank", np.nan) for name in table.index]
            table.insert(table.columns.get_loc("effective_rank"), "first_rank", ranks)
        return _sorted(table, sort)

    def table(self, *, sort: str | None = None) -> pd.DataFrame:
        """Return one row per matrix, and per step of a series.

        The columns are step (of a series), kind, shape, norm, effective_rank, stable_rank, r50,
        r90 and r99 (directions that hold these shares of the energy), tail_exponent and
        stands_out. With a base they describe the change W - W0, and change is |W - W0| / |W|.

        sort: a column to sort by, largest first.
        """
        rows = [row for checkpoint in self.checkpoints for row in _rows(checkpoint)]
        table = pd.DataFrame(rows).set_index("matrix")
        if len(self.checkpoints) == 1:
            table = table.drop(columns="step")
        if self.base is None:
            table = table.drop(columns="change")
        empty = [c for c in table if table[c].dtype == float and table[c].isna().all()]
        table = table.drop(columns=[c for c in empty if c not in ("norm", "change")])
        return _sorted(table, sort)


def _sorted(table: pd.DataFrame, sort: str | None) -> pd.DataFrame:
    if sort is None:
        return table
    if sort not in table:
        raise ValueError(f"sort is a column, one of {', '.join(table)}; got {sort!r}")
    return table.sort_values(sort, ascending=table[sort].dtype == object, kind="stable")


def _rows(checkpoint: CheckpointScan) -> list[dict[str, object]]:
    standing = remarks(checkpoint.matrices)
    return [
        {
            "matrix": matrix.name,
            "step": checkpoint.step,
            "kind": matrix.kind,
            "shape": f"{matrix.m} x {matrix.n}",
            **numbers(matrix),
            "stands_out": standing[matrix.name],
        }
        for matrix in checkpoint.matrices
    ]


def numbers(matrix: MatrixScan) -> dict[str, float]:
    """Return the metrics of one matrix; those that need all singular values may be NaN."""
    S, norm = matrix.spectrum, matrix.size
    row = {"norm": norm}
    whole = len(S) == min(matrix.m, matrix.n) and len(S) > 0
    row["effective_rank"] = float(metrics.effective_rank(S)) if whole else np.nan
    row["stable_rank"] = (norm / S[0]) ** 2 if len(S) and S[0] > 0 else np.nan
    for share in ENERGIES:
        row[f"r{share}"] = float(metrics.energy_rank(S, share / 100, norm=norm))
    row["tail_exponent"] = float(metrics.tail_exponent(S)) if whole else np.nan
    row["change"] = matrix.change_norm / matrix.norm if matrix.norm else np.nan
    return row
