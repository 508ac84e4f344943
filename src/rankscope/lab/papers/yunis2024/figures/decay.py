"""Rank and alignment at the end of training against weight decay (our own figure)."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.seeds import Read, Setting
from rankscope.figures.style import COLOURS, legend_below, open_frame
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.alignment import CHANCE
from rankscope.lab.papers.yunis2024.figures.quantities import (
    NER,
    RELATIVE_ALIGNMENT,
    ranks,
    relative_alignment,
)
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings

LINE = COLOURS(0.0)
WIDE, NARROW = 2.8, 1.2  # points


def rank_by_decay(runs: Runs) -> Figure:
    """Effective rank at the end of training against weight decay (not in the paper).

    Median over matrices of the effective rank divided by min(m, n). A point is one seed. A hollow
    point is a run that collapsed, whose flat spectrum reads as high rank. Lines go through the
    means of the others.
    """
    networks = sweep_settings(runs)
    figure = Figure(figsize=(0.6 + 1.8 * len(networks), 2.7), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, (name, settings) in zip(panels, networks.items(), strict=True):
        draw_ends(axes, settings, ranks, width=WIDE)
        axes.set_title(name, fontsize="medium", loc="left")
        label_decays(axes, settings)
        axes.set_ylim(0, 1)
        axes.tick_params(axis="x", labelsize="small")
        open_frame(axes)
    panels[0].set_ylabel("effective rank / full rank,\nmedian of matrices")
    return figure


def decay_overview(runs: Runs) -> Figure:
    """Rank and alignment at the end of training against weight decay (not in the paper).

    Top: normalised effective rank, median over matrices. Bottom: mean overlap a of the first ten
    directions over its background, median over pairs; the dotted line is chance. Pairs with a
    matrix that has decayed to zero are left out. A point is one seed, hollow if it collapsed. Lines
    go through the means of the others.
    """
    networks = sweep_settings(runs)
    figure = Figure(figsize=(0.6 + 1.8 * len(networks), 4.8), layout="constrained")
    grid = figure.subplots(2, len(networks), squeeze=False, sharex="col", sharey="row")
    for (ranked, relative), (name, settings) in zip(grid.T, networks.items(), strict=True):
        draw_ends(ranked, settings, ranks, width=WIDE)
        draw_ends(relative, settings, relative_alignment, width=WIDE)
        relative.axhline(1.0, color=CHANCE, linewidth=1, linestyle=":")
        ranked.set_title(name, fontsize="medium", loc="left")
        label_decays(relative, settings)
        relative.tick_params(axis="x", labelsize="small")
        for axes in (ranked, relative):
            open_frame(axes)
    grid[0, 0].set(ylabel=f"{NER},\nmedian of matrices", ylim=(0, 1))
    grid[1, 0].set(ylabel=f"{RELATIVE_ALIGNMENT},\nmedian of pairs", ylim=(0, None))
    hollow = Line2D([], [], color=LINE, marker="o", linestyle="", markerfacecolor="white")
    hollow.set_label("hollow: collapsed, in no line")
    chance = Line2D([], [], color=CHANCE, linewidth=1, linestyle=":", label="chance")
    legend_below(figure, [hollow, chance])
    return figure


def label_decays(axes: Axes, settings: Sequence[Setting]) -> None:
    """Write the paper's decays under the points."""
    decays = (float(setting.runs[0].attrs["paper_decay"]) for setting in settings)
    # Long decimals run into each other.
    labels = [
        f"$10^{{{math.log10(decay):.0f}}}$" if 0 < decay < 0.01 else f"{decay:g}"
        for decay in decays
    ]
    axes.set_xticks(range(len(settings)), labels=labels)
    axes.set_xlabel("weight decay")


def draw_ends(
    axes: Axes,
    settings: Sequence[Setting],
    read: Read,
    *,
    width: float = NARROW,
) -> None:
    """Draw the last median of `read` for each seed, and a line through the means.

    Collapsed seeds are hollow and not in the means.
    """
    values = [
        [float(read(ds.isel(step=[-1])).median()) for ds in setting.runs] for setting in settings
    ]
    flags = [setting.collapsed for setting in settings]
    means = [mean_of(seeds, left_out) for seeds, left_out in zip(values, flags, strict=True)]
    axes.plot(means, color=LINE, linewidth=width)
    for x, (seeds, left_out) in enumerate(zip(values, flags, strict=True)):
        for value, hollow in zip(seeds, left_out, strict=True):
            face = "white" if hollow else LINE
            axes.plot(x, value, "o", color=LINE, markerfacecolor=face, markersize=2.5 + width)


def mean_of(values: Sequence[float], left_out: Sequence[str]) -> float:
    """Return the mean of finite values of uncollapsed runs; NaN, a gap, if there is none."""
    counted = [v for v, why in zip(values, left_out, strict=True) if not why and np.isfinite(v)]
    return float(np.mean(counted)) if counted else float("nan")
