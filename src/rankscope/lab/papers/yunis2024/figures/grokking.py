"""Generalisation long after memorisation, and the ranks meanwhile (our own figure)."""

import math
from collections.abc import Iterable
from operator import itemgetter

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.lib.stride_tricks import sliding_window_view

from rankscope.figures.over_time import Line, point_or_line
from rankscope.figures.seeds import Read, Setting, over_seeds, steps_of
from rankscope.figures.style import DARK, categories, legend_below, log_axis, open_frame
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.claims.grokking import crossing, mean_rank, steepest_drop
from rankscope.lab.papers.yunis2024.figures.quantities import NER
from rankscope.lab.papers.yunis2024.figures.settings import by_decay

JUMP: Line = ":"
DROP: Line = "--"
PALE = 0.4  # opacity of held-out losses
WINDOW = 15  # snapshots of a running median
WIDTH = 9.0  # inches


def grokking(runs: Runs) -> Figure:
    """Loss, held-out accuracy and effective rank of modular addition (not in the paper).

    Columns are decays, steps are logarithmic, and every line is one seed. Losses are running
    medians over 15 snapshots, since Adam's spikes would hide them; the pale lines are held-out
    losses. The rank is the mean over matrices. A dotted line marks where half of the held-out sums
    are right for the first time. At the largest decay, which is judged, a dashed line marks where
    the mean rank falls most steeply. The question is whether rank falls when the network begins to
    generalise.
    """
    # Seeds jump at different steps, so means would show stairs that no run has.
    settings = by_decay(runs, "grok")
    figure = Figure(figsize=(WIDTH, 7.4), layout="constrained")
    grid = figure.subplots(3, len(settings), squeeze=False, sharex=True, sharey="row")
    for column, setting in zip(grid.T, settings, strict=True):
        draw_seeds(column[0], setting, itemgetter("training_loss"), smooth=True)
        draw_seeds(column[0], setting, itemgetter("validation_loss"), smooth=True, opacity=PALE)
        draw_seeds(column[1], setting, itemgetter("validation_accuracy"))
        draw_seeds(column[2], setting, mean_rank)
        mark(column, map(crossing, setting.runs), JUMP)
        column[0].set_title(setting.heading, fontsize="medium", loc="left")
        column[2].set_xlabel("training step + 1 (log scale)")
        for axes in column:
            open_frame(axes)
    mark(grid[1:, -1], map(steepest_drop, settings[-1].runs), DROP)
    grid[0, 0].set_yscale("log")
    start = [steps[1] for setting in settings if len(steps := steps_of([setting])) > 1]
    # There is no snapshot between step 0 and the first after it.
    grid[0, 0].set_xlim(left=max(1.0, min(start, default=1) / 3))
    log_axis(grid[0, 0])
    grid[1, 0].set_ylim(-0.03, 1.03)
    labels = ("loss", "held-out accuracy", f"{NER},\nmean of matrices")
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    legend_below(figure, seed_legend(max(settings, key=lambda setting: len(setting.runs))))
    return figure


def draw_seeds(
    axes: Axes, setting: Setting, read: Read, *, smooth: bool = False, opacity: float = 1.0
) -> None:
    """Draw what `read` returns over (step), each seed in its colour."""
    steps = steps_of([setting], read)
    values = over_seeds(setting, read, steps).to_numpy()
    for y, colour in zip(values, categories(len(values)), strict=True):
        shown = running_median(y) if smooth else y
        marker = point_or_line(y)
        axes.plot(steps + 1, shown, color=colour, linewidth=1.4, marker=marker, alpha=opacity)


def running_median(values: Num[np.ndarray, " step"]) -> Num[np.ndarray, " step"]:
    """Return the median over a window around each value, shorter towards both ends."""
    half = min(WINDOW, len(values)) // 2
    padded = np.pad(values.astype(np.float64), half, constant_values=np.nan)
    medians: np.ndarray = np.nanmedian(sliding_window_view(padded, 2 * half + 1), axis=1)
    return medians


def mark(column: Iterable[Axes], moments: Iterable[float], style: Line) -> None:
    """Draw vertical lines at moments, each seed's in its colour."""
    seeds = list(moments)
    for axes in column:
        for moment, colour in zip(seeds, categories(len(seeds)), strict=True):
            if not math.isnan(moment):
                axes.axvline(10**moment + 1, color=colour, linewidth=1.1, linestyle=style)


def seed_legend(setting: Setting) -> list[Line2D]:
    """Return the legend of seeds' colours, and of the lines that have them."""
    looks: tuple[tuple[Line, float, str], ...] = (
        ("-", 1.0, "training loss"),
        ("-", PALE, "held-out loss"),
        (JUMP, 1.0, "half of the held-out sums right"),
        (DROP, 1.0, "steepest drop of the mean rank"),
    )
    seeds = [
        Line2D([], [], color=colour, label=f"seed {ds.attrs['seed']}")
        for ds, colour in zip(setting.runs, categories(len(setting.runs)), strict=True)
    ]
    return seeds + [
        Line2D([], [], color=DARK, alpha=opacity, linewidth=1.1, linestyle=style, label=label)
        for style, opacity, label in looks
    ]
