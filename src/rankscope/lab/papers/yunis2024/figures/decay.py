"""Rank and alignment at the end of training against weight decay (our own figure)."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line
from rankscope.figures.seeds import Setting
from rankscope.figures.style import legend_below
from rankscope.lab.papers.yunis2024.figures.networks import (
    CHANCE,
    NARROW,
    NORMALISED,
    RAW,
    WIDE,
    mean_alignment,
    ranks,
    relative_alignment,
)
from rankscope.lab.papers.yunis2024.figures.sweeps import Networks

Final = Callable[[xr.Dataset], float]

# Line and mark: SOLID for what is measured, DASHED for its background.
Look = tuple[Line, str]
SOLID: Look = ("-", "o")
DASHED: Look = ("--", "s")
ROWS = (
    "effective rank / min(m, n),\nmedian of matrices",
    "mean alignment $a$,\nmedian of pairs",
    "$a$ / background,\nmedian of pairs",
)


def ends_by_decay(networks: Networks) -> Figure:
    """Draw the median rank of matrices and the median alignment of pairs at the end of training.

    Points are single seeds, hollow if collapsed. Lines go through the means of the others.
    """
    figure = Figure(figsize=(1 + 3.2 * len(networks), 8.4), layout="constrained")
    grid = figure.subplots(3, len(networks), squeeze=False, sharex="col")
    for (ranked, aligned, relative), (name, settings) in zip(grid.T, networks.items(), strict=True):
        draw_ends(ranked, settings, final_rank, RAW)
        draw_alignments(aligned, settings)
        draw_ends(relative, settings, final_ratio, RAW)
        relative.axhline(1.0, color=CHANCE, linewidth=1, linestyle=":")
        ranked.set_title(name)
        relative.set_xticks(
            range(len(settings)), labels=[decay_label(setting) for setting in settings]
        )
        relative.set_xlabel("weight decay")
    for axes, label in zip(grid[:, 0], ROWS, strict=True):
        axes.set_ylabel(label)
    legend_below(figure, end_legend())
    return figure


def ranks_by_decay(networks: Networks) -> Figure:
    """Draw the median rank of matrices at the end of training, one panel per network.

    Points are single seeds, hollow if collapsed. Lines go through the means of the others.
    """
    figure = Figure(figsize=(1 + 2.3 * len(networks), 2.7), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, (name, settings) in zip(panels, networks.items(), strict=True):
        draw_ends(axes, settings, final_rank, RAW, width=WIDE)
        axes.set_title(name)
        axes.set_xticks(range(len(settings)), labels=[decay_label(s) for s in settings])
        axes.set_xlabel("weight decay")
        axes.set_ylim(0, 1)
        axes.tick_params(axis="x", labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("effective rank / full rank,\nmedian of matrices")
    return figure


def decay_label(setting: Setting) -> str:
    """Return the paper's decay that the runs of a setting stand for."""
    return f"{setting.runs[0].attrs['paper_decay']:g}"


def draw_alignments(axes: Axes, settings: Sequence[Setting]) -> None:
    """Draw raw and normalised alignment, each with its background."""
    for variable, colour, width in (
        ("alignment_normalized", NORMALISED, WIDE),
        ("alignment", RAW, NARROW),
    ):
        background = partial(final_background, variable=variable)
        draw_ends(axes, settings, background, colour, look=DASHED, width=width)
        mean = partial(final_alignment, variable=variable)
        draw_ends(axes, settings, mean, colour, width=width)
    axes.set_ylim(bottom=0)


def draw_ends(
    axes: Axes,
    settings: Sequence[Setting],
    final: Final,
    colour: ColorType,
    *,
    look: Look = SOLID,
    width: float = NARROW,
) -> None:
    """Draw points for the seeds of each setting, and a line through means of uncollapsed seeds."""
    style, mark = look
    values = [[final(ds) for ds in setting.runs] for setting in settings]
    flags = [setting.collapsed or ("",) * len(setting.runs) for setting in settings]
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


def final_rank(ds: xr.Dataset) -> float:
    return float(ranks(ds.isel(step=[-1])).median())


def final_alignment(ds: xr.Dataset, *, variable: str) -> float:
    return float(mean_alignment(ds.isel(step=-1), variable).median())


def final_background(ds: xr.Dataset, *, variable: str) -> float:
    return float(ds[f"{variable}_background"].isel(step=-1).median())


def final_ratio(ds: xr.Dataset) -> float:
    return float(relative_alignment(ds.isel(step=[-1])).median())


def end_legend() -> list[Line2D]:
    looks: tuple[tuple[str, ColorType, float, Look], ...] = (
        ("rank, $a$, $a$ / background", RAW, NARROW, SOLID),
        ("background of $a$", RAW, NARROW, DASHED),
        ("normalised $a$", NORMALISED, WIDE, SOLID),
        ("normalised background", NORMALISED, WIDE, DASHED),
    )
    lines = [
        Line2D([], [], color=c, linewidth=w, linestyle=style, marker=mark, ms=2.5 + w, label=name)
        for name, c, w, (style, mark) in looks
    ]
    hollow = Line2D([], [], color=RAW, marker="o", linestyle="", markerfacecolor="white")
    hollow.set_label("hollow: collapsed, in no line")
    chance = Line2D([], [], color=CHANCE, linewidth=1, linestyle=":", label="chance")
    return [*lines, hollow, chance]
