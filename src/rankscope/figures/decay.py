"""Where training ends, against weight decay: rank and alignment by network (our own figure)."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.networks import NARROW, NORMALISED, RAW, WIDE, mean_alignment, ranks
from rankscope.figures.over_time import Line
from rankscope.figures.seeds import Setting
from rankscope.figures.style import legend_below
from rankscope.figures.sweeps import Networks

Final = Callable[[xr.Dataset], float]


def ends_by_decay(networks: Networks) -> Figure:
    """Median rank of all matrices, and median alignment of all pairs, at the end of training.

    Points are single seeds, lines their mean. Hollow: settings with a note (collapsed runs).
    """
    figure = Figure(figsize=(1 + 3.2 * len(networks), 6), layout="constrained")
    grid = figure.subplots(2, len(networks), squeeze=False, sharex="col")
    for (upper, lower), (name, settings) in zip(grid.T, networks.items(), strict=True):
        draw_ends(upper, settings, final_rank, RAW)
        draw_ends(lower, settings, final_background, RAW, style="--")
        draw_ends(lower, settings, final_normalized, NORMALISED, width=WIDE)
        draw_ends(lower, settings, final_alignment, RAW)
        upper.set_title(name)
        lower.set_ylim(bottom=0)
        lower.set_xticks(range(len(settings)), labels=[short(setting) for setting in settings])
        lower.set_xlabel("weight decay")
    grid[0, 0].set_ylabel("effective rank / min(m, n),\nmedian of matrices")
    grid[1, 0].set_ylabel("mean alignment $a$,\nmedian of pairs")
    legend_below(figure, end_legend())
    return figure


def draw_ends(
    axes: Axes,
    settings: Sequence[Setting],
    final: Final,
    colour: ColorType,
    *,
    style: Line = "-",
    width: float = NARROW,
) -> None:
    """Points for the seeds of each setting, and a line through their means."""
    values = [[final(ds) for ds in setting.runs] for setting in settings]
    means = [float(np.mean(seeds)) for seeds in values]
    axes.plot(means, color=colour, linestyle=style, linewidth=width)
    for x, (setting, seeds) in enumerate(zip(settings, values, strict=True)):
        face = "white" if setting.note else colour
        size = 2.5 + width
        axes.plot([x] * len(seeds), seeds, "o", color=colour, markerfacecolor=face, ms=size)


def final_rank(ds: xr.Dataset) -> float:
    return float(ranks(ds.isel(step=[-1])).median())


def final_alignment(ds: xr.Dataset) -> float:
    return float(mean_alignment(ds.isel(step=-1)).median())


def final_normalized(ds: xr.Dataset) -> float:
    return float(mean_alignment(ds.isel(step=-1), of="alignment_normalized").median())


def final_background(ds: xr.Dataset) -> float:
    return float(ds["alignment_background"].isel(step=-1).median())


def short(setting: Setting) -> str:
    """The decay alone, of "weight decay 0.1"."""
    return setting.title.rpartition(" ")[2]


def end_legend() -> list[Line2D]:
    hollow = Line2D([], [], color=RAW, marker="o", linestyle="", markerfacecolor="white")
    hollow.set_label("hollow: collapsed")
    return [
        Line2D([], [], color=RAW, label="as measured"),
        Line2D([], [], color=RAW, linestyle="--", label="background of the alignment"),
        Line2D([], [], color=NORMALISED, linewidth=WIDE, label="normalised alignment"),
        hollow,
    ]
