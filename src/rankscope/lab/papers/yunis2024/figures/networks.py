"""Four networks side by side: spectra and effective ranks over training (figs. 1 and 2)."""

import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from rankscope.figures.over_time import MOST_LINES, draw_heat_map, draw_spectrum
from rankscope.figures.seeds import Setting, average, over_seeds, steps_of
from rankscope.figures.style import BAND, COLOURS, categories, open_frame
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.quantities import NER, ranks, shown_spectrum
from rankscope.lab.papers.yunis2024.figures.rows import by_row, draw_brackets, matrix_rows
from rankscope.lab.papers.yunis2024.figures.settings import base_settings, time_of
from rankscope.plain_names import plain_names

WIDTH = 7.6  # inches
MAP, FALLS = 3.6, 2.4  # heights in inches, of a heat map and of the lines below
HEADING = 36  # characters that fit above a panel


def figure_1(runs: Runs) -> Figure:
    """Singular values of one weight matrix in the middle of each network, over training.

    Each line is one singular value, darker if larger. With several seeds it is their mean, and pale
    bands around the 1st, 4th, 16th and 64th reach from the lowest to the highest seed. Time is
    logarithmic. "Base" marks the paper's decay of figures 1-3. The paper says that large values
    grow out of proportion to small ones.
    """
    networks = base_settings(runs)
    figure, grid = panels_of(networks, height=2.7)
    for axes, (name, setting) in zip(grid, networks.items(), strict=True):
        steps = steps_of([setting], shown_spectrum)
        spectra = over_seeds(setting, shown_spectrum, steps)
        draw_spectrum(axes, spectra, time_of([setting], steps), most=MOST_LINES)
        (words,) = plain_names([str(setting.runs[0].attrs["shown_matrix"])])
        axes.set_title(title_of(name, setting, words.label), fontsize="small", loc="left")
        axes.set_ylabel("singular value")
        open_frame(axes)
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), COLOURS), ax=grid, aspect=50, shrink=0.6)
    bar.set_ticks([0, 1], labels=["largest\nvalue", "smallest"])
    bar.ax.invert_yaxis()
    return figure


def figure_2(runs: Runs) -> Figure:
    """Normalised effective rank of every weight matrix over training.

    A row is a matrix; brackets join those that do the same, the first layer on top. All networks
    share one colour scale and logarithmic time. The effective rank is exp of the entropy of the
    singular values as shares of their sum, here divided by min(m, n). With several seeds we show
    their mean. The last panel (not in the paper) shows how far it falls below its start: the median
    over matrices, in a band from the lower to the upper quartile. The paper says that it falls in
    nearly all matrices.
    """
    networks = base_settings(runs)
    maps_height = MAP * -(-len(networks) // 2)
    figure = Figure(figsize=(WIDTH, 0.4 + maps_height + FALLS), layout="constrained")
    parts = figure.subfigures(2, 1, height_ratios=(maps_height, FALLS), squeeze=False)
    maps_part, falls_part = parts[:, 0]
    grid = grid_of(maps_part, len(networks))
    falls = falls_part.subplots()
    colours = categories(len(networks))
    values_by_network = {
        name: average(setting, ranks, steps_of([setting], ranks))
        for name, setting in networks.items()
    }
    lowest = min(float(values.min()) for values in values_by_network.values())
    for axes, (name, setting), colour in zip(grid, networks.items(), colours, strict=True):
        values, rows = values_by_network[name].to_numpy(), matrix_rows(setting.runs[0])
        time = time_of([setting], steps_of([setting], ranks))
        mesh = draw_heat_map(axes, by_row(values, rows), time, lowest=lowest, highest=1.0)
        draw_brackets(axes, rows)
        axes.set_title(title_of(name, setting), fontsize="small", loc="left")
        change = values - values[0]
        low, middle, high = np.nanquantile(change, (0.25, 0.5, 0.75), axis=1)
        falls.fill_between(time.values, low, high, color=colour, alpha=BAND, linewidth=0)
        falls.plot(time.values, middle, color=colour, linewidth=1.6, label=name)
    maps_part.colorbar(mesh, ax=grid, label=NER, aspect=50)
    longest = max(networks.values(), key=lambda setting: steps_of([setting], ranks)[-1])
    time_of([longest], steps_of([longest], ranks)).draw(falls)
    falls.axhline(0, color="0.5", linewidth=0.8)
    falls.set_ylabel("change since the start,\nmedian matrix")
    falls.fill_between([], [], color="0.5", alpha=BAND, linewidth=0, label="middle half")
    falls.legend(frameon=False, fontsize="small", loc="lower left")
    open_frame(falls)
    return figure


def panels_of(networks: Mapping[str, Setting], *, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each network, two in a row, of `height` inches each."""
    rows = -(-len(networks) // 2)
    figure = Figure(figsize=(WIDTH, 0.3 + height * rows), layout="constrained")
    return figure, grid_of(figure, len(networks))


def grid_of(figure: Figure | SubFigure, count: int) -> list[Axes]:
    """Return `count` panels, two in a row."""
    grid = figure.subplots(-(-count // 2), min(count, 2), squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return list(grid[:count])


def title_of(name: str, setting: Setting, *more: str) -> str:
    """Return a title: the network and what of it is shown, then its runs."""
    first = ", ".join([name, *more])
    return "\n".join([first, textwrap.fill(setting.heading, HEADING)])
