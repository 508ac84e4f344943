"""Generalisation that comes long after memorisation, and the ranks meanwhile (our own figure)."""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.networks import Steps, ranks
from rankscope.figures.over_time import draw_band
from rankscope.figures.seeds import Setting, over_seeds, steps_of
from rankscope.figures.style import COLOURS, shades
from rankscope.figures.sweeps import head_rows
from rankscope.figures.training import whole_matrices

CROSSING = 0.5  # of validation accuracy
ROWS = ("loss", "validation accuracy", "effective rank / min(m, n)")


def grokking_by_decay(settings: Sequence[Setting]) -> Figure:
    """Loss, validation accuracy and effective ranks over log steps, a column for each decay.

    Thin vertical lines: where the validation accuracy of a seed first reaches one half.
    """
    figure = Figure(figsize=(1.5 + 3.9 * len(settings), 8), layout="constrained")
    grid = figure.subplots(3, len(settings), squeeze=False, sharex=True, sharey="row")
    for column, setting in zip(grid.T, settings, strict=True):
        steps = steps_of([setting])
        draw_losses(column[0], setting, steps)
        accuracy = over_seeds(setting, itemgetter("validation_accuracy"), steps)
        draw_band(column[1], accuracy, COLOURS(0.0), x=steps + 1)
        draw_ranks(column[2], setting, steps)
        mark_crossings(list(column), setting)
        column[2].set_xlabel("training step + 1")
    head_rows(list(grid[0]), settings, width=56)
    grid[0, 0].set(xscale="log", yscale="log")
    grid[1, 0].set_ylim(-0.03, 1.03)
    for axes, label in zip(grid[:, 0], ROWS, strict=True):
        axes.set_ylabel(label)
    for axes in (grid[0, -1], grid[2, -1]):
        axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
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


def mark_crossings(column: Sequence[Axes], setting: Setting) -> None:
    for step in (step for step in map(crossing, setting.runs) if step is not None):
        for axes in column:
            axes.axvline(step + 1, color="black", linewidth=0.7, linestyle=":")


def crossing(ds: xr.Dataset) -> int | None:
    """The first snapshot's step at which half of the validation samples are right, if any is."""
    right = np.flatnonzero(ds["validation_accuracy"].to_numpy() >= CROSSING)
    return int(ds["step"][right[0]]) if len(right) else None
