"""Stored trainings in closed form, laid out as the laboratory stores them.

Seeds 0, 1, 2 have 0.9, 1, 1.1 times the middle value, so means and bands are known: the mean over
all three is seed 1's, the band reaches from 0.9 to 1.1 of it. Scaled spectra have equal ranks.
"""

import base64

import numpy as np
import xarray as xr

from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.runs import Runs
from rankscope.lab.running.run import RunKey

DECAYS = {
    "vgg": (0.0, 1e-4, 0.001, 0.01, 0.1),
    "unet": (0.0, 0.1, 1.0, 10.0),
    "lstm": (0.0, 0.1, 1.0, 10.0),
    "lm": (0.0, 0.1, 1.0, 10.0),
    "grok": (0.0, 0.1, 1.0),
}
CONSTANT = 2.5  # loss of a guess
TOP = 100


def factor(seed: int) -> float:
    return 0.9 + 0.1 * seed


def training(
    seed: int,
    *,
    decay: float = 0.1,
    matrices: int = 3,
    pairs: int = 2,
    snapshots: int = 6,
    width: int = 8,
    collapsed: bool = False,
) -> xr.Dataset:
    """Large values grow and small ones shrink, the faster the more decay; alignment rises.

    There is one part of a matrix and one pair of another tap, which no figure may show.
    """
    names = [f"layers.{j}.weight" for j in range(matrices)]
    between = [f"layers.{j} > layers.{j + 1}" for j in range(pairs)]
    time = np.linspace(0, 1, snapshots)
    aligned = factor(seed) * alignment(time, pairs, decay)
    loss = CONSTANT * np.exp(-4 * time) * factor(seed)
    return xr.Dataset(
        {
            "singular_values": (
                ("step", "matrix", "k"),
                factor(seed) * spectra(time, matrices + 1, width, decay),
            ),
            "alignment": (("step", "pair", "i"), aligned),
            "alignment_normalized": (("step", "pair", "i"), 2 * aligned),
            "alignment_background": (("step", "pair"), np.full((snapshots, pairs + 1), 0.02)),
            "alignment_normalized_background": (
                ("step", "pair"),
                np.full((snapshots, pairs + 1), 0.06),
            ),
            "training_loss": ("step", np.full(snapshots, CONSTANT) if collapsed else loss),
            "top_loss": ("step", loss + 0.2 * factor(seed)),
            "bottom_loss": ("step", np.full(snapshots, 5.0)),
            "validation_loss": ("step", 2 * loss),
            "validation_accuracy": ("step", time**2 * factor(seed) / 1.1),
        },
        coords={
            "step": (10 * np.arange(snapshots) ** 2).astype(int),
            "matrix": [*names, f"{names[0]}[0]"],
            "m": ("matrix", np.full(matrices + 1, 2 * width)),
            "n": ("matrix", np.full(matrices + 1, width)),
            "kind": ("matrix", ["linear"] * (matrices + 1)),
            "part_of": ("matrix", [*([""] * matrices), names[0]]),
            "pair": [*between, f"{between[0]} [tap 0,1]"],
            "pair_kind": ("pair", [*(["conv"] * pairs), "tap"]),
            "earlier": ("pair", [names[j] for j in (*range(pairs), 0)]),
            "later": ("pair", [names[j + 1] for j in (*range(pairs), 0)]),
            "chance": ("pair", np.full(pairs + 1, 0.01)),
            "i": np.arange(1, TOP + 1),
        },
        attrs={
            "seed": seed,
            "paper_decay": decay,
            "constant_loss": CONSTANT,
            "diverged_at": None,
            "shown_matrix": names[matrices // 2],
            "shown_pair": between[pairs // 2],
            "samples": samples(),
        },
    )


def spectra(time: np.ndarray, matrices: int, width: int, decay: float) -> np.ndarray:
    """(step, matrix, k): 1 at first; then (1 + t) exp(-(1 + decay) (depth) t i / width)."""
    i, depth = np.arange(width) / width, np.linspace(1, 2, matrices)[:, None]
    t = time[:, None, None]
    return (1 + t) * np.exp(-(1 + decay) * depth * t * i)


def alignment(time: np.ndarray, pairs: int, decay: float) -> np.ndarray:
    """(step, pair, i), NaN beyond the first pair's 5 directions."""
    i, t = np.arange(TOP), time[:, None, None]
    depth = np.linspace(0.5, 1, pairs + 1)[:, None]
    overlaps = 0.02 + 0.3 * depth * t * np.exp(-i / 8) * (1 + decay) / (2 + decay)
    overlaps[:, 0, 5:] = np.nan
    return overlaps


def samples(count: int = 9, edge: int = 8) -> dict[str, object]:
    """Image j has the grey 20 j."""
    grey = np.repeat(np.arange(count, dtype=np.uint8) * 20, edge * edge)
    return {
        "shape": [count, edge, edge],
        "bytes": base64.b64encode(grey.tobytes()).decode(),
    }


def trainings(*networks: str, seeds: int = 3, **size: int) -> Runs:
    """Return runs of whole networks; the VGG at the highest decay has collapsed."""
    return Runs(
        {
            RunKey(network, {"decay": decay}): {
                seed: training(
                    seed, decay=decay, collapsed=(network, decay) == ("vgg", 0.1), **size
                )
                for seed in range(seeds)
            }
            for network in networks
            for decay in DECAYS[network]
        }
    )


def label_runs(*, seeds: int = 3, **size: int) -> Runs:
    """Return the perceptron's runs: true labels lower the ranks more."""
    return Runs(
        {
            RunKey("mlp", {"labels": labels}): {
                seed: training(seed, decay=decay, **size) for seed in range(seeds)
            }
            for labels, decay in (("true", 1.0), ("random", 0.1))
        }
    )


def needed(figure: FigureRule, runs: Runs) -> Runs:
    """Return the runs that a figure needs."""
    return Runs({key: runs[key] for key in figure.needs(list(runs))})
