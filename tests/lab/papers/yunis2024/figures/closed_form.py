"""Stored trainings in closed form, laid out as the laboratory stores them.

Seeds 0, 1, 2 have 0.9, 1, 1.1 times the middle value, so means and bands are known: the mean over
all three is seed 1's, the band reaches from 0.9 to 1.1 of it. Scaled spectra have equal ranks.
"""

import base64
from collections.abc import Collection, Iterable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.runs import BASE
from rankscope.lab.running.run_key import RunKey

DECAYS = {
    "vgg": (0.0, 1e-4, 0.001, 0.01, 0.1),
    "unet": (0.0, 0.1, 1.0, 10.0),
    "lstm": (0.0, 0.1, 1.0, 10.0),
    "lm": (0.0, 0.1, 1.0, 10.0),
    "grok": (0.0, 0.1, 1.0),
}
CONSTANT = 2.5  # loss of a guess
TOP = 100
NAMES = [f"layers.{j}.weight" for j in range(3)]
PAIRS = ["layers.0 > layers.1", "layers.1 > layers.2"]
STEPS = [0, 10, 40, 90, 160, 250]
WIDTH = 8


def factor(seed: int) -> float:
    return 0.9 + 0.1 * seed


def training(seed: int, *, decay: float = 0.1, collapsed: bool = False) -> xr.Dataset:
    """Large values grow and small ones shrink, the faster the more decay; alignment rises.

    There is one part of a matrix and one pair of another tap, which no figure may show.
    """
    time = np.linspace(0, 1, len(STEPS))
    aligned = factor(seed) * alignment(time, decay)
    flat = np.ones(aligned.shape[:2])
    loss = CONSTANT * np.exp(-4 * time) * factor(seed)
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), factor(seed) * spectra(time, decay)),
            "alignment": (("step", "pair", "i"), aligned),
            "alignment_normalized": (("step", "pair", "i"), 2 * aligned),
            "alignment_background": (("step", "pair"), 0.02 * flat),
            "alignment_normalized_background": (("step", "pair"), 0.06 * flat),
            "training_loss": ("step", np.full(len(time), CONSTANT) if collapsed else loss),
            "top_loss": ("step", loss + 0.2 * factor(seed)),
            "bottom_loss": ("step", np.full(len(time), 5.0)),
            "validation_loss": ("step", 2 * loss),
            "validation_accuracy": ("step", time**2 * factor(seed) / 1.1),
        },
        coords={
            "step": STEPS,
            "matrix": [*NAMES, f"{NAMES[0]}[0]"],
            "m": ("matrix", [2 * WIDTH] * 4),
            "n": ("matrix", [WIDTH] * 4),
            "kind": ("matrix", ["linear"] * 4),
            "part_of": ("matrix", ["", "", "", NAMES[0]]),
            "pair": [*PAIRS, f"{PAIRS[0]} [tap 0,1]"],
            "pair_kind": ("pair", ["conv", "conv", "tap"]),
            "earlier": ("pair", [NAMES[0], NAMES[1], NAMES[0]]),
            "later": ("pair", [NAMES[1], NAMES[2], NAMES[1]]),
            "chance": ("pair", [0.01] * 3),
            "i": np.arange(1, TOP + 1),
        },
        attrs={
            "seed": seed,
            "paper_decay": decay,
            "constant_loss": CONSTANT,
            "diverged_at": None,
            "shown_matrix": NAMES[1],
            "shown_pair": PAIRS[1],
            "samples": samples(),
        },
    )


def spectra(time: np.ndarray, decay: float) -> np.ndarray:
    """(step, matrix, k): 1 at first; then (1 + t) exp(-(1 + decay) (depth) t i / width)."""
    i, depth = np.arange(WIDTH) / WIDTH, np.linspace(1, 2, 4)[:, None]
    t = time[:, None, None]
    return (1 + t) * np.exp(-(1 + decay) * depth * t * i)


def alignment(time: np.ndarray, decay: float) -> np.ndarray:
    """(step, pair, i), NaN beyond the first pair's 5 directions."""
    i, t = np.arange(TOP), time[:, None, None]
    depth = np.linspace(0.5, 1, 3)[:, None]
    overlaps = 0.02 + 0.3 * depth * t * np.exp(-i / 8) * (1 + decay) / (2 + decay)
    overlaps[:, 0, 5:] = np.nan
    return overlaps


def ranks(ds: xr.Dataset) -> np.ndarray:
    """(step, matrix): normalised effective ranks of the whole matrices."""
    S = ds["singular_values"].to_numpy()[:, :3]
    p = S / S.sum(-1, keepdims=True)
    return np.exp(-(p * np.log(p)).sum(-1)) / WIDTH


def mean_alignment(ds: xr.Dataset) -> np.ndarray:
    """(step, pair): the first pair has 5 directions."""
    A = ds["alignment"].to_numpy()
    return np.stack([A[:, 0, :5].mean(-1), A[:, 1, :10].mean(-1)], axis=1)


def samples(count: int = 9, edge: int = 8) -> dict[str, object]:
    """Image j has the grey 20 j."""
    grey = np.repeat(np.arange(count, dtype=np.uint8) * 20, edge * edge)
    return {
        "shape": [count, edge, edge],
        "bytes": base64.b64encode(grey.tobytes()).decode(),
    }


def sweep(
    network: str, *decays: float, seeds: int = 3, collapsed: Collection[tuple[float, int]] = ()
) -> Runs:
    """Return the runs of one network. collapsed: (decay, seed) of those that did."""
    return Runs(
        {
            RunKey(network, {"decay": decay}): {
                seed: training(seed, decay=decay, collapsed=(decay, seed) in collapsed)
                for seed in range(seeds)
            }
            for decay in decays
        }
    )


def together(*runs: Runs) -> Runs:
    return Runs({key: part[key] for part in runs for key in part})


def trainings(*networks: str, seeds: int = 3) -> Runs:
    """Return runs of whole networks; the VGG at the highest decay has collapsed."""
    ill = [(0.1, seed) for seed in range(seeds)]
    return together(
        *(
            sweep(network, *DECAYS[network], seeds=seeds, collapsed=ill if network == "vgg" else ())
            for network in networks
        )
    )


def base_trainings(*networks: str, seeds: int = 3) -> Runs:
    """Return the runs of networks at the decay of figures 1-3."""
    return together(*(sweep(network, BASE[network], seeds=seeds) for network in networks))


def label_runs(*, seeds: int = 3) -> Runs:
    """Return the perceptron's runs: true labels lower the ranks more."""
    return Runs(
        {
            RunKey("mlp", {"labels": labels}): {
                seed: training(seed, decay=decay) for seed in range(seeds)
            }
            for labels, decay in (("true", 1.0), ("random", 0.1))
        }
    )


def needed(figure: FigureRule, runs: Runs) -> Runs:
    """Return the runs that a figure needs."""
    return Runs({key: runs[key] for key in figure.needs(list(runs))})


def panels(figure: Figure | SubFigure) -> list[Axes]:
    """Return the panels that are not colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def cells(axes: Axes) -> np.ndarray:
    return np.ma.filled(heat_map(axes).get_array(), np.nan)


def heat_map(axes: Axes) -> QuadMesh:
    (mesh,) = (artist for artist in axes.collections if isinstance(artist, QuadMesh))
    return mesh


def looks(lines: Iterable[Line2D]) -> set[tuple[object, str]]:
    return {(line.get_color(), line.get_linestyle()) for line in lines}
