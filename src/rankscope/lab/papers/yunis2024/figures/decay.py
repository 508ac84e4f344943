"""Rank and alignment at the end of training against weight decay (our own figure)."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line
from rankscope.figures.seeds import Read, Setting
from rankscope.figures.style import legend_below
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.networks import (
    CHANCE,
    NARROW,
    OVERLAPS,
    RAW,
    WIDE,
    alignment_legend,
    chance_line,
    mean_alignment,
    ranks,
    relative_alignment,
)
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings

# Line and mark: SOLID for what is measured, DASHED for its background.
Look = tuple[Line, str]
SOLID: Look = ("-", "o")
DASHED: Look = ("--", "s")
ROWS = (
    "effective rank / min(m, n),\nmedian of matrices",
    "mean alignment $a$,\nmedian of pairs",
    "$a$ / background,\nmedian of pairs",
)


def rank_by_decay(runs: Runs) -> Figure:
    """Effective rank at the end of training against weight decay (not in the paper).

    Median over matrices of the effective rank divided by min(m, n). A point is one seed. A hollow
    point is a run that collapsed, whose flat spectrum reads as high rank. Lines go through the
    means of the others.
    """
    networks = sweep_settings(runs)
    figure = Figure(figsize=(1 + 2.3 * len(networks), 2.7), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, (name, settings) in zip(panels, networks.items(), strict=True):
        draw_ends(axes, settings, ranks, RAW, width=WIDE)
        axes.set_title(name)
        label_decays(axes, settings)
        axes.set_ylim(0, 1)
        axes.tick_params(axis="x", labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("effective rank / full rank,\nmedian of matrices")
    return figure


def decay_overview(runs: Runs) -> Figure:
    """Rank and alignment at the end of training against weight decay (not in the paper).

    Top: normalised effective rank, median over matrices. Middle: mean overlap a of the first ten
    directions, median over pairs, raw and normalised, each with its background. Bottom: a over
    background, median over pairs; the dotted line is chance. Pairs with a matrix that has decayed
    to zero are left out. A point is one seed, hollow if it collapsed. Lines go through the means of
    the others.
    """
    networks = sweep_settings(runs)
    figure = Figure(figsize=(1 + 3.2 * len(networks), 8.4), layout="constrained")
    grid = figure.subplots(3, len(networks), squeeze=False, sharex="col")
    for (ranked, aligned, relative), (name, settings) in zip(grid.T, networks.items(), strict=True):
        draw_ends(ranked, settings, ranks, RAW)
        for variable, colour, width in OVERLAPS:
            background = itemgetter(f"{variable}_background")
            draw_ends(aligned, settings, background, colour, look=DASHED, width=width)
            mean = partial(mean_alignment, variable=variable)
            draw_ends(aligned, settings, mean, colour, width=width)
        aligned.set_ylim(bottom=0)
        draw_ends(relative, settings, relative_alignment, RAW)
        relative.axhline(1.0, color=CHANCE, linewidth=1, linestyle=":")
        ranked.set_title(name)
        label_decays(relative, settings)
    for axes, label in zip(grid[:, 0], ROWS, strict=True):
        axes.set_ylabel(label)
    hollow = Line2D([], [], color=RAW, marker="o", linestyle="", markerfacecolor="white")
    hollow.set_label("hollow: collapsed, in no line")
    lines = alignment_legend("rank, $a$, $a$ / background", marks=(SOLID[1], DASHED[1]))
    legend_below(figure, [*lines, hollow, chance_line("chance")])
    return figure


def label_decays(axes: Axes, settings: Sequence[Setting]) -> None:
    """Write the paper's decays under the points."""
    labels = [f"{setting.runs[0].attrs['paper_decay']:g}" for setting in settings]
    axes.set_xticks(range(len(settings)), labels=labels)
    axes.set_xlabel("weight decay")


def draw_ends(
    axes: Axes,
    settings: Sequence[Setting],
    read: Read,
    colour: ColorType,
    *,
    look: Look = SOLID,
    width: float = NARROW,
) -> None:
    """Draw the last median of `read` for each seed, and a line through the means.

    Collapsed seeds are hollow and not in the means.
    """
    style, mark = look
    values = [
        [float(read(ds.isel(step=[-1])).median()) for ds in setting.runs] for setting in settings
    ]
    flags = [setting.collapsed for setting in settings]
    means = [mean_of(seeds, left_out) for seeds, left_out in zip(values, flags, strict=True)]
    axes.plot(means, color=colour, linestyle=style, linewidth=width)
    for x, (seeds, left_out) in enumerate(zip(values, flags, strict=True)):
        for value, hollow in zip(seeds, left_out, strict=True):
            face = "white" if hollow else colour
            axes.plot(x, value, mark, color=colour, markerfacecolor=face, markersize=2.5 + width)


def mean_of(values: Sequence[float], left_out: Sequence[str]) -> float:
    """Return the mean of finite values of uncollapsed runs; NaN, a gap, if there is none."""
    counted = [v for v, why in zip(values, left_out, strict=True) if not why and np.isfinite(v)]
    return float(np.mean(counted)) if counted else float("nan")
