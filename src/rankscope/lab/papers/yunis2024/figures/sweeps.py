"""Weight decay against training time: rows are decays, columns networks (yunis2024, figs. 4-5).

The rows of a network share their colours, so decays can be compared.
"""

import textwrap
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from rankscope.figures.over_time import (
    INDEX,
    draw_heat_map,
    draw_spectrum,
    label_time,
    number_rows,
    share_heights,
)
from rankscope.figures.seeds import Read, Setting, average, over_seeds, steps_of
from rankscope.figures.style import COLOURS, legend_below
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.networks import (
    MEAN_ALIGNMENT,
    SHORT_TIME,
    Steps,
    draw_alignment_lines,
    draw_diagonal,
    draw_ratios,
    mean_alignment,
    ranks,
    shown,
    shown_diagonal,
    shown_pair_legend,
    shown_spectrum,
)
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings

SMALL = "x-small"
LINES = 40  # singular values in a small panel
WIDTH = 5.6  # inches for a network
HEADING = 76  # characters that fit above its two panels


def figure_4(runs: Runs) -> Figure:
    """Singular values and effective ranks over training, for every weight decay.

    Rows are decays, from none at the top. "Base" marks the decay of figures 1-3, which the paper's
    sweep of the VGG lacks. Left: singular values of one matrix, as in figure 1, each panel with its
    own vertical axis. Right: normalised effective rank of every matrix, as in figure 2; the rows of
    a network share one colour scale. Headings name runs that collapsed, whose flat spectra read as
    high rank. The paper says that more decay gives lower rank.
    """
    return by_network(runs, draw_spectra, "matrix", "all matrices", head=1.4, row=2.1)


def figure_5(runs: Runs) -> Figure:
    """Alignment of neighbouring matrices over training, for every weight decay.

    Each decay has two rows. Upper row, as in the paper: overlaps A_ii of one pair on the left, and
    their mean a over the first ten directions for every pair on the right. Lower row (not in the
    paper): a of the one pair on the left, raw and normalised, with background and chance; a over
    background for every pair on the right. White is chance, red above, blue below. Cells are grey
    and lines end once a matrix has decayed to zero, since its directions are then rounding errors.
    The decays of a network share scales. The paper says that more decay gives stronger alignment,
    strongest in the Transformer.
    """
    figure = by_network(runs, draw_alignment, "pair", "all pairs", head=2.6, row=4.0)
    legend_below(figure, shown_pair_legend())
    return figure


def by_network(
    runs: Runs,
    draw: Callable[[SubFigure, Sequence[Setting], int], None],
    dim: str,
    others: str,
    *,
    head: float,
    row: float,
) -> Figure:
    """Draw the networks side by side. head, row: heights in inches, of the bars and of a decay."""
    networks = sweep_settings(runs)
    rows = max(map(len, networks.values()))
    figure = Figure(figsize=(WIDTH * len(networks), head + row * rows), layout="constrained")
    parts = figure.subfigures(1, len(networks), squeeze=False)[0]
    for part, (name, settings) in zip(parts, networks.items(), strict=True):
        part.suptitle(f"{name}\n{shown(settings[0], dim)}, and {others}", fontsize="medium")
        draw(part, settings, rows)
    return figure


def draw_spectra(part: SubFigure, settings: Sequence[Setting], rows: int) -> None:
    """Draw one network: a row for each setting, in a grid of `rows`."""
    steps, places = steps_of(settings, ranks), part.add_gridspec(rows, 2)
    left, right = ([part.add_subplot(places[i, j]) for i in range(len(settings))] for j in (0, 1))
    for axes, setting in zip(left, settings, strict=True):
        shade = draw_spectrum(axes, over_seeds(setting, shown_spectrum, steps), most=LINES)
        axes.set_ylabel("singular value", fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        axes.set_xlim(-0.5, len(steps) - 0.5)  # as the heat map beside it
    mesh = draw_maps(right, settings, ranks, steps, ylabel="matrix, by depth")
    head_rows(left, settings)
    label_columns((left, right), steps)
    draw_scale(part, ScalarMappable(shade, COLOURS), left, INDEX)
    draw_scale(part, mesh, right, "effective rank / min(m, n)")


def draw_alignment(part: SubFigure, settings: Sequence[Setting], rows: int) -> None:
    """Draw one network: two rows for each setting, the paper's heat maps over ours."""
    places, steps = part.add_gridspec(2 * rows, 2), steps_of(settings, shown_diagonal)
    shown_pair, all_pairs, levels, relative = (
        [part.add_subplot(places[2 * i + below, j]) for i in range(len(settings))]
        for below in (0, 1)
        for j in (0, 1)
    )
    diagonals = [average(setting, shown_diagonal, steps).to_numpy() for setting in settings]
    for axes, diagonal in zip(shown_pair, diagonals, strict=True):
        scale = draw_diagonal(axes, diagonal, highest=greatest(diagonals), size=SMALL)
        axes.set_ylabel("direction $i$", fontsize=SMALL)
    mesh = draw_maps(
        all_pairs, settings, mean_alignment, steps, lowest=0.0, ylabel="pair, by depth"
    )
    head_rows(shown_pair, settings)
    for axes in (*shown_pair, *all_pairs):
        label_time(axes, steps, most=5, size=SMALL, label="")
    draw_levels(levels, settings, steps)
    draw_scale(part, scale, shown_pair, "alignment $A_{ii}$")
    draw_scale(part, mesh, all_pairs, MEAN_ALIGNMENT)
    below = {"location": "bottom", "aspect": 30, "pad": 0.01}
    draw_ratios(part, relative, settings, steps, size=SMALL, **below)
    for axes in relative:
        number_rows(axes, settings[0].runs[0].sizes["pair"], most=5, size=SMALL)
        axes.set_ylabel("pair, by depth", fontsize=SMALL)
        label_time(axes, steps, most=5, size=SMALL, label=SHORT_TIME)


def draw_levels(column: Sequence[Axes], settings: Sequence[Setting], steps: Steps) -> None:
    """Draw the shown pair's a(t) for each setting, on one vertical scale."""
    for axes, setting in zip(column, settings, strict=True):
        draw_alignment_lines(axes, setting, steps)
        axes.set_ylabel("$a$, shown pair", fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        label_time(axes, steps, most=5, size=SMALL, label=SHORT_TIME)
    share_heights(column, bottom=0.0)


def draw_maps(
    column: Sequence[Axes],
    settings: Sequence[Setting],
    read: Read,
    steps: Steps,
    *,
    ylabel: str,
    lowest: float | None = None,
) -> QuadMesh:
    """Draw heat maps of what `read` returns over (step, row) by setting, on one colour scale."""
    values = [average(setting, read, steps).to_numpy().T for setting in settings]
    lowest = -greatest([-rows for rows in values]) if lowest is None else lowest
    for axes, rows in zip(column, values, strict=True):
        mesh = draw_heat_map(axes, rows, lowest=lowest, highest=greatest(values))
        number_rows(axes, len(rows), most=5, size=SMALL)
        axes.set_ylabel(ylabel, fontsize=SMALL)
    return mesh


def greatest(arrays: Sequence[np.ndarray]) -> float:
    """Return the greatest finite number, or 1 if there is none, so that a scale remains."""
    finite = np.concatenate([values[np.isfinite(values)] for values in arrays])
    return float(finite.max()) if len(finite) else 1.0


def draw_scale(
    part: SubFigure, colours: ScalarMappable, column: Sequence[Axes], label: str
) -> None:
    """Draw the colour bar of a column, above it."""
    ticks = MaxNLocator(4)
    bar = part.colorbar(colours, ax=list(column), location="top", aspect=30, pad=0.01, ticks=ticks)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def head_rows(column: Sequence[Axes], settings: Sequence[Setting], *, width: int = HEADING) -> None:
    """Write the heading of each row over its first panel, `width` characters wide."""
    for axes, setting in zip(column, settings, strict=True):
        heading = textwrap.fill(setting.heading, width)
        axes.set_title(heading, loc="left", fontsize="small")


def label_columns(columns: Sequence[Sequence[Axes]], steps: Steps) -> None:
    """Write training steps under the last panel of each column, and draw ticks in all."""
    for column in columns:
        for axes in column:
            label_time(axes, steps, most=5, size=SMALL, label=SHORT_TIME)
        for axes in column[:-1]:
            axes.tick_params(labelbottom=False)
            axes.set_xlabel("")
