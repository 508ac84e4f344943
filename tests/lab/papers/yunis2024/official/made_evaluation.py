"""An evaluation of the authors and runs of ours, made by hand."""

from datetime import UTC, datetime

import numpy as np
import xarray as xr

from lab.papers.yunis2024.closed_form_runs import PairCourse, at_decay, course, flat, training_run
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.official.evaluation import LAYERS


def made() -> dict[str, np.ndarray]:
    """Two evaluations: rank 0.5 and 0.25 everywhere; taps differ from the centre."""
    arrays = {"step": np.array([10.0, 20.0])}
    for key in LAYERS.values():
        arrays |= {f"{key}_eff_rank": np.array([0.5, 0.25]), f"{key}_sv": np.ones((2, 8))}
    overlaps, levels = np.full((2, 3, 3, 20), 0.9), np.full((2, 3, 3), 0.9)
    overlaps[:, 1, 1, :10], levels[:, 1, 1] = 0.3, 0.1
    key = f"{LAYERS['conv1']}_{LAYERS['conv2']}_align"
    arrays |= {f"{key}_diagonal": overlaps, f"{key}_background": levels}
    for name in ("train/loss", "train/pruned_bot_loss", "train/pruned_top_loss", "val/loss"):
        arrays[name] = np.array([2.0, 1.0])
    return arrays | {"val/err": np.array([0.5, 0.4])}


def ours(rank: int) -> xr.Dataset:
    """A VGG whose matrices have so many of 8 values at every one of four snapshots."""
    spectra = {name: flat(8, [rank] * 4) for name in LAYERS}
    pair = PairCourse("conv1", "conv2", course([0.2] * 4), background=0.05)
    names = ("top_loss", "bottom_loss", "validation_loss", "validation_accuracy")
    scalars = {name: [0.75] * 4 for name in names}
    ds = training_run(spectra, [pair], steps=(0, 9, 21, 30), scalars=scalars)
    began = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    return ds.assign_attrs(started=began, wall_seconds=25.0)


def runs() -> Runs:
    return Runs(at_decay("vgg", 1e-4, {seed: ours(rank) for seed, rank in enumerate((4, 6))}))
