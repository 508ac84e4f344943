"""Training loss of networks, and of the top and bottom halves of their SVDs (yunis2024, fig. 6)."""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.over_time import Line, draw_band, share_heights
from rankscope.figures.seeds import Setting, over_seeds, steps_of
from rankscope.figures.style import COLOURS, LOG_FROM, Colour, legend_below
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings
from rankscope.lab.papers.yunis2024.figures.sweeps import head_rows, label_columns
from rankscope.lab.papers.yunis2024.runs import with_full_loss

# Variable, its name in the legend, colour, line.
LOSSES: tuple[tuple[str, str, Colour, Line], ...] = (
    ("bottom_loss", "bottom half of each SVD", COLOURS(0.95), "-."),
    ("top_loss", "top half of each SVD", COLOURS(0.55), "--"),
    ("full_loss", "full model", COLOURS(0.0), "-"),
)
CONSTANT = "0.45"
HEADING = 50  # characters that fit above a panel


def figure_6(runs: Runs) -> Figure:
    """Training loss of each network, and of the same network with half of each SVD removed.

    Rows are decays, from none at the top. We replace every matrix but the last linear layer by the
    top or by the bottom half of its SVD, and measure BatchNorm statistics anew. With several seeds,
    lines are means and bands reach from the lowest to the highest. Dotted: the loss of the best
    guess that ignores the input. The paper says that the top half comes close to the full network,
    closer with more decay, and that the bottom half does not. It also says that training still
    works at high decay.
    """
    networks = sweep_settings(runs)
    rows = max(map(len, networks.values()))
    size = (0.5 + 3.6 * len(networks), 0.9 + 2.0 * rows)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.add_gridspec(rows, len(networks))
    for j, (name, settings) in enumerate(networks.items()):
        column = [figure.add_subplot(places[i, j]) for i in range(len(settings))]
        draw_losses(column, settings)
        named = [setting._replace(title=f"{name}, {setting.title}") for setting in settings]
        head_rows(column, named, width=HEADING)
    legend_below(figure, loss_legend())
    return figure


def draw_losses(column: Sequence[Axes], settings: Sequence[Setting]) -> None:
    steps = steps_of(settings)
    drawn = []
    for axes, setting in zip(column, settings, strict=True):
        for variable, _, colour, style in LOSSES:
            setting = setting._replace(runs=tuple(map(with_full_loss, setting.runs)))
            if all(variable in ds for ds in setting.runs):
                values = over_seeds(setting, itemgetter(variable), steps)
                draw_band(axes, values, colour, style=style)
                drawn.append(values)
        constant = setting.runs[0].attrs["constant_loss"]
        axes.axhline(constant, color=CONSTANT, linewidth=0.8, linestyle=":")
        axes.margins(x=0.02)
        axes.set_ylabel("training loss", fontsize="x-small")
        axes.tick_params(which="both", labelsize="x-small")
    share_losses(column, drawn)
    label_columns([column], steps)


def share_losses(column: Sequence[Axes], drawn: Sequence[xr.DataArray]) -> None:
    """Give the losses of a network one axis, logarithmic if they differ by much."""
    least = min((float(values.min()) for values in drawn), default=np.nan)
    most = max((float(values.max()) for values in drawn), default=np.nan)
    if least > 0 and most > LOG_FROM * least:
        for axes in column:
            axes.set_yscale("log")
    share_heights(column)


def loss_legend() -> list[Line2D]:
    lines = [Line2D([], [], color=c, linestyle=s, label=name) for _, name, c, s in LOSSES[::-1]]
    constant = Line2D([], [], color=CONSTANT, linewidth=0.8, linestyle=":", label="constant guess")
    return [*lines, constant]
