"""Generalisation that comes long after memorisation, and the ranks meanwhile (our own figure)."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from operator import itemgetter

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.networks import Steps, ranks
from rankscope.figures.over_time import Line, draw_band
from rankscope.figures.seeds import Read, Setting, over_seeds, steps_of
from rankscope.figures.style import COLOURS, legend_below, shades
from rankscope.figures.sweeps import head_rows
from rankscope.figures.training import whole_matrices

# log10 of a step, NaN if it never comes.
Moment = Callable[[xr.Dataset], float]

ROWS = ("loss", "validation accuracy", "effective rank / min(m, n)")
JUMP: Line = ":"
DROP: Line = "--"
SEEDS = ("tab:red", "tab:blue", "tab:orange")  # colours that no matrix has


def grokking_by_decay(
    settings: Sequence[Setting], *, mean: Read, jump: Moment, drop: Moment
) -> Figure:
    """Loss, validation accuracy and effective ranks over log steps, a column for each decay.

    The black line among the ranks is `mean`, over (step). Vertical lines, one for each seed: dotted
    in every column where accuracy jumps, dashed in the last one where `mean` drops.
    """
    figure = Figure(figsize=(1.5 + 3.9 * len(settings), 8.6), layout="constrained")
    grid = figure.subplots(3, len(settings), squeeze=False, sharex=True, sharey="row")
    for column, setting in zip(grid.T, settings, strict=True):
        steps = steps_of([setting])
        draw_losses(column[0], setting, steps)
        accuracy = over_seeds(setting, itemgetter("validation_accuracy"), steps)
        draw_band(column[1], accuracy, COLOURS(0.0), x=steps + 1)
        draw_ranks(column[2], setting, steps)
        average = over_seeds(setting, mean, steps)
        draw_band(column[2], average, "black", x=steps + 1, width=2.4, label="mean of matrices")
        mark(column, map(jump, setting.runs), JUMP)
        column[2].set_xlabel("training step + 1")
    mark(grid[1:, -1], map(drop, settings[-1].runs), DROP)
    head_rows(list(grid[0]), settings, width=56)
    grid[0, 0].set(xscale="log", yscale="log")
    start = [steps[1] for setting in settings if len(steps := steps_of([setting])) > 1]
    grid[0, 0].set_xlim(left=min(start, default=1) / 3)  # nothing is known between it and step 0
    grid[1, 0].set_ylim(-0.03, 1.03)
    for axes, label in zip(grid[:, 0], ROWS, strict=True):
        axes.set_ylabel(label)
    for axes in (grid[0, -1], grid[2, -1]):
        axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    legend_below(figure, moment_legend())
    return figure


def draw_losses(axes: Axes, setting: Setting, steps: Steps) -> None:
    for kind, colour in (("training", COLOURS(0.0)), ("validation", COLOURS(0.65))):
        values = over_seeds(setting, itemgetter(f"{kind}_loss"), steps)
        draw_band(axes, values, colour, x=steps + 1, label=kind)


def draw_ranks(axes: Axes, setting: Setting, steps: Steps) -> None:
    """A line for each whole matrix, the first in the model darkest."""
    values, names = over_seeds(setting, ranks, steps), whole_matrices(setting.runs[0])
    for j, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True)):
        draw_band(axes, values[..., j], colour, x=steps + 1, label=name)


def mark(column: Iterable[Axes], moments: Iterable[float], style: Line) -> None:
    """Vertical lines, each seed's in its colour, so that its two moments are seen to belong."""
    seeds = list(zip(moments, cycle(SEEDS), strict=False))
    for axes in column:
        for moment, colour in seeds:
            if not math.isnan(moment):
                axes.axvline(10**moment + 1, color=colour, linewidth=1.1, linestyle=style)


def moment_legend() -> list[Line2D]:
    looks = (
        (JUMP, "half of the held-out sums right"),
        (DROP, "steepest drop of the mean rank (each seed in its colour)"),
    )
    return [
        Line2D([], [], color="black", linewidth=1.1, linestyle=style, label=label)
        for style, label in looks
    ]
