"""Runs of the paper by network and decay, titled as its figures show them."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from rankscope.figures.seeds import Setting
from rankscope.figures.time_axis import TrainingTime
from rankscope.lab.judging.selected_runs import Runs, Seeds
from rankscope.lab.papers.yunis2024.runs import BASE, decay_of, neighbours, overlaps
from rankscope.lab.training.outcome import collapsed

TITLES = {"vgg": "VGG", "unet": "UNet", "lstm": "LSTM", "lm": "Transformer", "grok": "grokking"}

Networks = Mapping[str, Sequence[Setting]]


def base_settings(runs: Runs) -> dict[str, Setting]:
    """Return the runs of figures 1-3 by the title of their network, in the paper's order."""
    return {
        TITLES[network]: setting(decay_title(network, decay_of(key)), runs[key])
        for network in BASE
        for key in runs.of(network)
    }


def sweep_settings(runs: Runs) -> Networks:
    """Return the settings of each network by its title, in the paper's order."""
    return {TITLES[name]: by_decay(runs, name) for name in TITLES if runs.of(name)}


def by_decay(runs: Runs, network: str) -> list[Setting]:
    """Return a setting for each decay, ascending."""
    return [
        setting(decay_title(network, decay), seeds)
        for decay, seeds in runs.of(network).by("decay").items()
    ]


def decay_title(network: str, decay: float) -> str:
    """Return "weight decay 0.1 (base)"; base is the decay of figures 1-3."""
    return f"weight decay {decay:g}{' (base)' if decay == BASE.get(network) else ''}"


def setting(title: str, seeds: Seeds) -> Setting:
    """Return the runs of all seeds in order, without the pairs of other filter taps."""
    near = (neighbours(seeds[seed]) for seed in sorted(seeds))
    runs = tuple(ds.assign(overlaps(ds)) for ds in near)
    return Setting(title, runs, tuple(map(collapsed, runs)))


def time_of(settings: Sequence[Setting], steps: Int[np.ndarray, " step"]) -> TrainingTime:
    """Return the time of steps in epochs, or in steps if the runs declare no epochs."""
    snapshots = settings[0].runs[0].attrs.get("declaration", {}).get("snapshots", {})
    length = snapshots.get("steps_per_epoch")
    return TrainingTime(steps) if length is None else TrainingTime(steps / length, "epoch")
