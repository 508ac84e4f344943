"""Scans as runs of the store: one snapshot per checkpoint, written as soon as it is there."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope import snapshot, store
from rankscope.matrices import Views
from rankscope.provenance import origin
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.results import CheckpointScan
from rankscope.store import Variable, Writer

NORMS = ("norm", "change_norm")
OK, ZERO, FAILED = range(3)


class StoredScan:
    """A run that a scan writes, and continues if it was interrupted."""

    def __init__(self, path: Path, matrices: Views, settings: Mapping[str, Any]) -> None:
        """`matrices` are those of the first checkpoint; `settings` say what is measured.

        ValueError if `path` holds something else, or a scan with other settings.
        """
        self.path = path
        self._settings = dict(settings)
        self._change = settings.get("base") is not None
        readings = tuple(r for r in matrices.readings.values() if r.part_of is None)
        self._shapes = {reading.name: (reading.m, reading.n) for reading in readings}
        plan = snapshot.Plan(readings, (), ())
        dtypes = {name: _dtype(matrices, name) for name in plan.parameters}
        coords, variables = snapshot.layout(plan, dtypes, change=self._change)
        for name in NORMS[: 1 + self._change]:
            variables[name] = Variable(("step", "matrix"), np.dtype("float64"))
        self._k = plan.k
        if store.is_run(path):
            self._require_same()
            self._writer = Writer.resume(path, coords=coords, variables=variables)
            return
        attrs = {
            **origin(torch.device("cpu")),
            "scan": self._settings,
            "reference": settings.get("base") or "none",
            "manifest": matrices.manifest.to_json(),
            "coverage": str(matrices.coverage),
        }
        self._writer = Writer.create(path, coords=coords, variables=variables, attrs=attrs)

    def _require_same(self) -> None:
        stored = store.open(self.path).attrs.get("scan")
        if stored is None:
            raise ValueError(f"{self.path} is a run, and none of a scan; choose another path")
        wanted = json.loads(json.dumps(self._settings))
        other = [name for name in wanted if dict(stored).get(name) != wanted[name]]
        if other:
            raise ValueError(
                f"{self.path} holds a scan with another {other[0]}; choose another path, or remove "
                "it to begin anew"
            )

    @property
    def steps(self) -> set[int]:
        """Steps that are stored already."""
        return {int(step) for step in self._writer.steps}

    def append(self, scan: CheckpointScan) -> None:
        """Commit the scan of one checkpoint; matrices of other shapes are left out."""
        if len(self._writer.steps) and scan.step <= self._writer.steps[-1]:
            raise ValueError(
                f"{self.path} holds step {int(self._writer.steps[-1])}, and step {scan.step} comes "
                "before it; remove the run to scan the whole series"
            )
        by_name = {matrix.name: matrix for matrix in scan.matrices}
        rows = [
            matrix
            if (matrix := by_name.get(name)) is not None and (matrix.m, matrix.n) == shape
            else None
            for name, shape in self._shapes.items()
        ]
        values = {
            "singular_values": self._padded([row.S if row else None for row in rows]),
            "status": np.array([_status(row) for row in rows], dtype=np.int8),
            "norm": np.array([row.norm if row else np.nan for row in rows]),
        }
        if self._change:
            changes = [row.change if row else None for row in rows]
            values["change_singular_values"] = self._padded(changes)
            values["change_norm"] = np.array([row.change_norm if row else np.nan for row in rows])
        self._writer.append(scan.step, values)

    def _padded(self, spectra: Sequence[np.ndarray | None]) -> np.ndarray:
        block = np.full((len(spectra), self._k), np.nan)
        for row, S in zip(block, spectra, strict=True):
            if S is not None:
                row[: len(S)] = S
        return block

    def close(self) -> None:
        """Close the run."""
        self._writer.close()

    def __enter__(self) -> "StoredScan":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def stored_matrices(path: Path, step: int) -> tuple[MatrixScan, ...]:
    """Return the matrices of one step of a stored scan, rounded as the store rounds them."""
    run = store.open(path).sel(step=step).load()
    return tuple(_matrix(run.isel(matrix=i)) for i in range(run.sizes["matrix"]))


def _matrix(row: Any) -> MatrixScan:
    m, n = int(row["m"]), int(row["n"])
    compared = "change_singular_values" in row
    change = compared and not np.isnan(float(row["change_norm"]))
    return MatrixScan(
        name=str(row["matrix"].item()),
        kind=str(row["kind"].item()),
        m=m,
        n=n,
        dtype=str(row["dtype"].item()),
        S=_values(row["singular_values"].to_numpy(), min(m, n)),
        norm=float(row["norm"]),
        change=_values(row["change_singular_values"].to_numpy(), min(m, n)) if change else None,
        change_norm=float(row["change_norm"]) if change else np.nan,
        compared=compared,
    )


def _values(padded: np.ndarray, k: int) -> np.ndarray:
    S = padded[:k].astype(np.float64)
    stored = ~np.isnan(S)
    return S[stored] if stored.any() else S


def _status(row: MatrixScan | None) -> int:
    if row is None or not np.isfinite(row.norm):
        return FAILED
    return ZERO if row.norm == 0 else OK


def _dtype(matrices: Views, name: str) -> torch.dtype:
    from rankscope.matrices.source import CheckpointTensors

    stored = matrices.tensors.stored
    assert isinstance(stored, CheckpointTensors)
    return stored.checkpoint.tensors[stored.names[name]].dtype
