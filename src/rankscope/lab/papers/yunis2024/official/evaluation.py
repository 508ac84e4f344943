"""Evaluation of a VGG-16 by the authors' published code that trained it, and our runs beside it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.runs import BASE, decay_of

FOLDER = "yunis2024/official"
EVALUATION, COST = "vgg-evaluation.npz", "cost.json"

# Place of each convolution in the code's nn.Sequential, in which max-pools count too.
PLACES = (0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 14, 15, 16)
LAYERS = {
    **{
        f"conv{number}": f"model.layers.{place}.conv.weight"
        for number, place in enumerate(PLACES, 1)
    },
    "head": "model.fc.weight",
}
LEADING = 10  # directions over which alignment is averaged


@dataclass(frozen=True)
class Official:
    """Arrays of the authors' evaluation by their keys; the first axis is the evaluation."""

    arrays: Mapping[str, np.ndarray]

    @property
    def steps(self) -> list[int]:
        """Optimizer steps at which they evaluated."""
        return [int(step) for step in self.arrays["step"]]

    def rank(self, matrix: str) -> np.ndarray:
        """Normalised effective rank of a matrix, named as in our runs, by evaluation."""
        return self.arrays[f"{LAYERS[matrix]}_eff_rank"]

    def singular_values(self, matrix: str) -> np.ndarray:
        """(evaluation, k): singular values of a matrix."""
        return self.arrays[f"{LAYERS[matrix]}_sv"]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Neighbours whose alignment they stored."""
        names = list(LAYERS)
        return [pair for pair in pairwise(names) if _key(pair) in self.arrays]

    def alignment(self, pair: tuple[str, str]) -> np.ndarray:
        """Mean overlap of the first ten directions, at the centre tap of a filter."""
        overlaps: np.ndarray = _at_centre(self.arrays[_key(pair)], axes=1)[..., :LEADING].mean(-1)
        return overlaps

    def background(self, pair: tuple[str, str]) -> np.ndarray:
        """Mean overlap of directions that do not belong together, at the centre tap."""
        return _at_centre(self.arrays[_key(pair, "background")], axes=0)


def _key(pair: Sequence[str], kind: str = "diagonal") -> str:
    return f"{LAYERS[pair[0]]}_{LAYERS[pair[1]]}_align_{kind}"


def _at_centre(values: np.ndarray, *, axes: int) -> np.ndarray:
    """Select tap (1, 1) of (evaluation, 3, 3, ...) if there are taps; axes: of what follows."""
    return values[:, 1, 1] if values.ndim == 3 + axes else values


def read_official(archive: Path) -> Official:
    """Read the authors' evaluation from an archive; ValueError if it is not there."""
    path = archive / FOLDER / EVALUATION
    if not path.is_file():
        raise ValueError(f"{path} is missing; take it from a checkout of rankscope")
    with np.load(path, allow_pickle=False) as stored:
        return Official(dict(stored))


def read_cost(archive: Path) -> dict[str, float]:
    """Read what the authors' pipeline took, from an archive."""
    content = json.loads((archive / FOLDER / COST).read_text())
    return {name: float(value) for name, value in content.items() if name != "device"}


def our_runs(runs: Runs) -> dict[int, xr.Dataset]:
    """Return our VGGs at the decay of their run, by seed."""
    (key,) = (key for key in runs.of("vgg") if decay_of(key) == BASE["vgg"])
    return dict(runs[key])


def nearest_snapshot(ds: xr.Dataset, step: int) -> xr.Dataset:
    """Return the snapshot whose step is nearest among those that have spectra."""
    stored = ds["singular_values"].notnull().any(["matrix", "k"]).to_numpy()
    with_spectra = ds.isel(step=np.flatnonzero(stored))
    return with_spectra.sel(step=[step], method="nearest")
