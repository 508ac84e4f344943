"""A figure of the authors' evaluation beside our VGGs, at equal optimizer steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from rankscope.figures.style import BAND, DARK, Colour, shades
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.official.evaluation import (
    LAYERS,
    Official,
    nearest_snapshot,
    our_runs,
    read_official,
)
from rankscope.lab.papers.yunis2024.official.tables import alignment_of, rank_of

SPECTRA = ("conv2", "conv7", "conv13")
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
WIDTH = 3.0  # points, of the lines of ours

# Each step of theirs, and our snapshots of all seeds nearest to it.
Snapshots = Mapping[int, Sequence[xr.Dataset]]


def official_vgg(runs: Runs, archive: Path) -> Figure:
    """The authors' own code beside ours: a VGG-16 on CIFAR-10 after epochs 2 and 3.

    Crosses and dashed lines are what the authors' published code says of the VGG that it trained.
    Dots and broad lines are the mean over our seeds, bars and bands reach from the lowest to the
    highest. Left: normalised effective rank of every matrix. Middle: singular values of three
    matrices after epoch 3. Right: mean overlap a of the first ten directions of the five pairs that
    the code had stored, after epoch 3.
    """
    official, seeds = read_official(archive), our_runs(runs)
    ours = {s: [nearest_snapshot(ds, s) for ds in seeds.values()] for s in official.steps}
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(5, 4, 3))
    draw_ranks(left, official, ours)
    draw_spectra(middle, official, ours)
    draw_alignment(right, official, ours)
    titles = ("Every matrix", "Singular values, epoch 3", "Alignment, epoch 3")
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, loc="left", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=legend(len(seeds)), loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_ranks(axes: Axes, official: Official, ours: Snapshots) -> None:
    """Draw normalised effective rank by matrix, in a colour for each epoch."""
    x, names = np.arange(len(LAYERS)), list(LAYERS)
    for n, (colour, step) in enumerate(zip(shades(3), ours, strict=False)):
        position, shift = official.steps.index(step), 0.18 * (2 * n - 1)
        draw_seeds(axes, x + shift, [rank_of(ours[step], name) for name in names], colour)
        theirs = [official.rank(name)[position] for name in names]
        axes.plot(x + shift, theirs, "x", color=DARK, markersize=6, zorder=3)
        axes.plot([], [], "o", color=colour, markersize=4, label=f"epoch {n + 2}")
    labels = [name.removeprefix("conv") for name in names]
    labels[-1] = f"\n{labels[-1]}"  # below the numbers, which leave it no room
    axes.set_xticks(x, labels=labels, fontsize="small")
    axes.set(xlabel="convolution, and the linear head", ylabel="effective rank / min(m, n)")
    axes.legend(frameon=False, loc="lower center")


def draw_spectra(axes: Axes, official: Official, ours: Snapshots) -> None:
    """Draw the singular values of three matrices at the last step, on log axes."""
    step = official.steps[-1]
    for name, colour in zip(SPECTRA, shades(len(SPECTRA) + 1), strict=False):
        theirs = official.singular_values(name)[-1]
        matrices = [ds["singular_values"].sel(matrix=name)[0].to_numpy() for ds in ours[step]]
        seeds = np.stack(matrices)[:, : len(theirs)]
        k = np.arange(1, len(theirs) + 1)
        axes.fill_between(k, seeds.min(0), seeds.max(0), color=colour, alpha=BAND, linewidth=0)
        axes.plot(k, seeds.mean(0), color=colour, linewidth=WIDTH, label=name)
        axes.plot(k, theirs, color=DARK, linewidth=1, linestyle=(0, (4, 2)))
    axes.set(xscale="log", yscale="log", xlabel="index (1 = largest)", ylabel="singular value")
    axes.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=TICKS[0])
    axes.legend(frameon=False, loc="lower left")


def draw_alignment(axes: Axes, official: Official, ours: Snapshots) -> None:
    """Draw a by pair at the last step."""
    x, step = np.arange(len(official.pairs)), official.steps[-1]
    names = [" > ".join(pair) for pair in official.pairs]
    seeds = [[alignment_of(ds, name) for ds in ours[step]] for name in names]
    draw_seeds(axes, x, seeds, shades(3)[1])
    theirs = [official.alignment(pair)[-1] for pair in official.pairs]
    axes.plot(x, theirs, "x", color=DARK, markersize=6, zorder=3)
    labels = [name.replace("conv", "").replace(" > ", "-") for name in names]
    axes.set_xticks(x, labels=labels, fontsize="small")
    axes.set(xlabel="pair", ylabel="mean alignment $a$", xlim=(-0.5, len(names) - 0.5))
    axes.set_ylim(bottom=0)


def draw_seeds(
    axes: Axes, x: np.ndarray, values: Sequence[Sequence[float]], colour: Colour
) -> None:
    """Draw the mean of each list as a dot, with a bar from its lowest to its highest value."""
    means, lows, highs = (np.array([f(seeds) for seeds in values]) for f in (np.mean, min, max))
    bars = np.stack([means - lows, highs - means])
    axes.errorbar(x, means, bars, fmt="o", color=colour, markersize=4, elinewidth=WIDTH, alpha=0.8)


def legend(seeds: int) -> list[Line2D | Patch]:
    """Return what is theirs and what is ours."""
    theirs = Line2D([], [], color=DARK, marker="x", linestyle=(0, (4, 2)), linewidth=1)
    theirs.set_label("the authors' published code, one seed")
    name = f"ours, mean and range of {seeds} seeds"
    ours = Line2D([], [], color="0.55", marker="o", linewidth=WIDTH, markersize=4, label=name)
    return [theirs, ours]
