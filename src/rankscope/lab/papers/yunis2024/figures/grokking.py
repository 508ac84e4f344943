"""Generalisation long after memorisation, and the ranks meanwhile (our own figure)."""

import math
from collections.abc import Iterable
from itertools import cycle
from operator import itemgetter

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line, point_or_line
from rankscope.figures.seeds import Read, Setting, over_seeds, steps_of
from rankscope.figures.style import COLOURS, legend_below, shades
from rankscope.figures.training import whole_matrices
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.claims.grokking import crossing, mean_rank, steepest_drop
from rankscope.lab.papers.yunis2024.figures.networks import Steps, ranks
from rankscope.lab.papers.yunis2024.figures.settings import by_decay
from rankscope.lab.papers.yunis2024.figures.sweeps import head_rows

ROWS = ("loss", "validation accuracy", "effective rank / min(m, n)")
JUMP: Line = ":"
DROP: Line = "--"
SEEDS = ("tab:red", "black", "tab:orange")  # colours that no matrix has
THIN, BROAD = 0.7, 2.4  # points


def grokking(runs: Runs) -> Figure:
    """Loss, validation accuracy and effective ranks of modular addition (not in the paper).

    Columns are decays, steps are logarithmic, and every line is one seed. The broad line among the
    ranks is their mean over matrices. Accuracy, this mean and vertical lines have a colour for each
    seed. A dotted line marks where half of the held-out sums are right for the first time. At the
    largest decay, which is judged, a dashed line marks where the mean rank falls most steeply. The
    question is whether rank falls when the network begins to generalise.
    """
    # Seeds jump at different steps, so means would show stairs that no run has.
    settings = by_decay(runs, "grok")
    figure = Figure(figsize=(1.5 + 3.9 * len(settings), 8.6), layout="constrained")
    grid = figure.subplots(3, len(settings), squeeze=False, sharex=True, sharey="row")
    for column, setting in zip(grid.T, settings, strict=True):
        steps = steps_of([setting])
        for kind, colour in (("training", COLOURS(0.0)), ("validation", COLOURS(0.65))):
            loss = over_seeds(setting, itemgetter(f"{kind}_loss"), steps)
            draw_alike(column[0], loss, colour, kind)
        draw_seeds(column[1], setting, itemgetter("validation_accuracy"), steps, width=1.4)
        draw_ranks(column[2], setting, steps)
        draw_seeds(column[2], setting, mean_rank, steps, width=BROAD)
        mark(column, map(crossing, setting.runs), JUMP)
        column[2].set_xlabel("training step + 1")
    mark(grid[1:, -1], map(steepest_drop, settings[-1].runs), DROP)
    head_rows(list(grid[0]), settings, width=56)
    grid[0, 0].set(xscale="log", yscale="log")
    start = [steps[1] for setting in settings if len(steps := steps_of([setting])) > 1]
    # There is no snapshot between step 0 and the first after it.
    grid[0, 0].set_xlim(left=min(start, default=1) / 3)
    grid[1, 0].set_ylim(-0.03, 1.03)
    for axes, label in zip(grid[:, 0], ROWS, strict=True):
        axes.set_ylabel(label)
    for axes in (grid[0, -1], grid[2, -1]):
        axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    legend_below(figure, seed_legend(max(settings, key=lambda setting: len(setting.runs))))
    return figure


def draw_ranks(axes: Axes, setting: Setting, steps: Steps) -> None:
    """Draw lines for each whole matrix, those of the first in the model darkest."""
    values, names = over_seeds(setting, ranks, steps), whole_matrices(setting.runs[0])
    for j, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True)):
        draw_alike(axes, values[..., j], colour, name)


def draw_alike(axes: Axes, values: xr.DataArray, colour: ColorType, label: str) -> None:
    """Draw a thin line for each seed of (seed, step), all in one colour."""
    x, y = values["step"].to_numpy() + 1, values.to_numpy()
    first, *_ = axes.plot(x, y.T, color=colour, linewidth=THIN, marker=point_or_line(x))
    first.set_label(label)


def draw_seeds(axes: Axes, setting: Setting, read: Read, steps: Steps, *, width: float) -> None:
    """Draw what `read` returns over (step), each seed in its colour."""
    values = over_seeds(setting, read, steps).to_numpy()
    for y, colour in zip(values, cycle(SEEDS), strict=False):
        axes.plot(steps + 1, y, color=colour, linewidth=width, marker=point_or_line(y))


def mark(column: Iterable[Axes], moments: Iterable[float], style: Line) -> None:
    """Draw vertical lines at moments, each seed's in its colour."""
    seeds = list(zip(moments, cycle(SEEDS), strict=False))
    for axes in column:
        for moment, colour in seeds:
            if not math.isnan(moment):
                axes.axvline(10**moment + 1, color=colour, linewidth=1.1, linestyle=style)


def seed_legend(setting: Setting) -> list[Line2D]:
    """Return the legend of seeds' colours, and of the lines that have them."""
    looks: tuple[tuple[Line, float, str], ...] = (
        ("-", BROAD, "mean rank of matrices"),
        (JUMP, 1.1, "half of the held-out sums right"),
        (DROP, 1.1, "steepest drop of the mean rank"),
    )
    seeds = [
        Line2D([], [], color=colour, label=f"seed {ds.attrs['seed']}")
        for ds, colour in zip(setting.runs, cycle(SEEDS), strict=False)
    ]
    return seeds + [
        Line2D([], [], color="0.5", linewidth=width, linestyle=style, label=label)
        for style, width, label in looks
    ]
