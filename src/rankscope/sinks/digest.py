"""Digest of a snapshot: few enough numbers for a dashboard, and one picture."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rankscope import figures
from rankscope.accessor import METRICS

PREFIX = "rankscope"
MOST = 40  # scalars of a digest, without those of single matrices
ROLL_UPS = ("mean", "lowest", "highest")
DEFAULT = ("normalized_effective_rank", "stable_rank", "spectral_norm")
OF_LEADING = ("stable_rank", "spectral_norm", "frobenius_norm")
CHANGE = "relative_change"
Matrices = str | Sequence[str]


@dataclass(frozen=True)
class Digest:
    """Numbers that sinks log of one snapshot.

    scalars: by a name such as "stable_rank/lowest" or "stable_rank/kind/attention".
    names: the matrix that a lowest or highest scalar is of.
    """

    step: int
    scalars: Mapping[str, float]
    names: Mapping[str, str]

    def labelled(self) -> dict[str, float | str]:
        """Return the scalars and the names of extreme matrices, under "rankscope/"."""
        names = {f"{PREFIX}/{name}_of": matrix for name, matrix in self.names.items()}
        return {f"{PREFIX}/{name}": value for name, value in self.scalars.items()} | names


def digest(
    run: xr.Dataset, *, metrics: Sequence[str] | None = None, matrices: Matrices = ()
) -> Digest:
    """Return the digest of the last snapshot of `run`.

    Each metric has its mean, its lowest and its highest value over whole matrices, and its mean
    over the matrices of each kind: at most 40 scalars, for which rare kinds are left out. The
    relative change |W - W0| / |W| counts as a metric if the run has a reference.

    metrics: names of metrics of `run.rankscope`; by default normalised effective rank, stable rank
        and spectral norm, or those that leading values suffice for.
    matrices: patterns of matrices whose own values are added, beyond the 40.
    """
    last = run.isel(step=[-1])
    if metrics is None:
        metrics = DEFAULT if "singular_values" in run else OF_LEADING
    check_metrics(metrics)
    values = _values(last, metrics)
    whole = last["part_of"].to_numpy() == ""
    names = last["matrix"].to_numpy().astype(str)
    kinds = last["kind"].to_numpy().astype(str)[whole]
    scalars: dict[str, float] = {}
    extremes: dict[str, str] = {}
    for metric, column in values.items():
        measured = np.where(np.isfinite(column[whole]), column[whole], np.nan)
        if np.isnan(measured).all():
            continue
        low, high = int(np.nanargmin(measured)), int(np.nanargmax(measured))
        scalars[f"{metric}/mean"] = float(np.nanmean(measured))
        scalars[f"{metric}/lowest"] = float(measured[low])
        scalars[f"{metric}/highest"] = float(measured[high])
        extremes[f"{metric}/lowest"] = str(names[whole][low])
        extremes[f"{metric}/highest"] = str(names[whole][high])
        for kind in _most_frequent(kinds, MOST // len(values) - len(ROLL_UPS)):
            of_kind = measured[kinds == kind]
            if np.isfinite(of_kind).any():
                scalars[f"{metric}/kind/{kind}"] = float(np.nanmean(of_kind))
    for metric, column in values.items():
        for row in _matching(names, matrices):
            if np.isfinite(column[row]):
                scalars[f"{metric}/matrix/{names[row]}"] = float(column[row])
    return Digest(int(last["step"][0]), scalars, extremes)


def check_metrics(metrics: Sequence[str] | None) -> None:
    """Raise ValueError for a metric that does not exist, or for too many."""
    metrics = metrics or ()
    for metric in metrics:
        if metric not in METRICS:
            raise ValueError(f"there is no metric {metric!r}; there are {', '.join(METRICS)}")
    most = MOST // len(ROLL_UPS) - 1  # the relative change is one more
    if len(metrics) > most:
        raise ValueError(f"metrics: expected at most {most}, got {len(metrics)}")


def heat_map(run: xr.Dataset) -> UInt8[np.ndarray, "h w 3"]:
    """Return the heat map of all spectra at the last snapshot as pixels."""
    canvas: Any = FigureCanvasAgg(figures.spectra_by_matrix(run))
    canvas.draw()
    return np.array(canvas.buffer_rgba(), np.uint8)[..., :3]


def _values(last: xr.Dataset, metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Return each metric of each matrix."""
    accessor = last.rankscope
    values = {name: getattr(accessor, name)().to_numpy()[0] for name in metrics}
    if "change_singular_values" in last or "change_leading_values" in last:
        change = accessor.frobenius_norm(of="change_singular_values").to_numpy()[0]
        norm = accessor.frobenius_norm().to_numpy()[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            values[CHANGE] = change / norm
    return values


def _most_frequent(kinds: np.ndarray, most: int) -> list[str]:
    names, counts = np.unique(kinds, return_counts=True)
    return [str(name) for name in names[np.argsort(-counts, kind="stable")][:most]]


def _matching(names: np.ndarray, matrices: Matrices) -> list[int]:
    patterns = [matrices] if isinstance(matrices, str) else list(matrices)
    return [
        row
        for row, name in enumerate(names)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
