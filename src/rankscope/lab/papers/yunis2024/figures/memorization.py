"""A network that learns true labels beside one that learns random ones (yunis2024, fig. 7)."""

from collections.abc import Sequence
from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.over_time import (
    Line,
    draw_band,
    draw_shades,
    draw_spectrum,
    label_time,
    share_heights,
)
from rankscope.figures.seeds import Read, Setting, over_seeds, steps_of
from rankscope.figures.style import DARK, shades
from rankscope.figures.training import whole_matrices
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.networks import (
    MEAN_ALIGNMENT,
    SHORT_TIME,
    Steps,
    mean_alignment,
    ranks,
    shown,
    shown_spectrum,
)
from rankscope.lab.papers.yunis2024.figures.settings import setting


def figure_7(runs: Runs) -> Figure:
    """A multilayer perceptron that learns true labels (top) and random labels (bottom).

    The columns show singular values of one middle matrix, normalised effective rank of each matrix,
    and alignment of each neighbouring pair with its background (dashed). Both rows share their
    vertical axes. With several seeds, lines are means and bands reach from the lowest to the
    highest. The paper says that with true labels the middle layers have lower rank and stay
    aligned, while with random labels alignment comes and fades.
    """
    by_labels = runs.of("mlp").by("labels")
    settings = [setting(f"{labels} labels", by_labels[labels]) for labels in ("true", "random")]
    steps = steps_of(settings, ranks)
    figure = Figure(figsize=(13, 1.4 + 2.9 * len(settings)), layout="constrained")
    grid = figure.subplots(len(settings), 3, squeeze=False)
    for row, labelled in zip(grid, settings, strict=True):
        shade = draw_spectrum(row[0], over_seeds(labelled, shown_spectrum, steps))
        draw_layers(row[1], labelled, ranks, steps)
        draw_layers(row[2], labelled, itemgetter("alignment_background"), steps, style="--")
        draw_layers(row[2], labelled, mean_alignment, steps)
        row[0].set_title(f"{labelled.heading}: singular values of {shown(labelled, 'matrix')}")
        row[1].set_title("effective rank / min(m, n)")
        row[2].set_title(MEAN_ALIGNMENT)
        for axes in row:
            axes.title.set_fontsize("medium")
            label_time(axes, steps, most=5, label=SHORT_TIME)
    for column, bottom in zip(grid.T, (0.0, None, 0.0), strict=True):
        share_heights(list(column), bottom=bottom)
    draw_shades(grid[0, 0], shade, *grid[1:, 0])
    first = settings[0].runs[0]
    name_lines(grid[-1, 1], whole_matrices(first))
    pairs = [str(pair) for pair in first["pair"].to_numpy()]
    name_lines(grid[-1, 2], pairs, Line2D([], [], color=DARK, linestyle="--", label="background"))
    return figure


def draw_layers(
    axes: Axes, setting: Setting, read: Read, steps: Steps, *, style: Line = "-"
) -> None:
    """Draw what `read` returns over (step, layer): a line with its band for each layer."""
    values = over_seeds(setting, read, steps)
    for j, colour in enumerate(shades(values.shape[-1])):
        draw_band(axes, values[..., j], colour, style=style)
    axes.margins(x=0.02)


def name_lines(axes: Axes, names: Sequence[str], *more: Line2D) -> None:
    """Write the names of lines below the panel, darkest first."""
    colours = zip(names, shades(len(names)), strict=True)
    lines = [Line2D([], [], color=colour, label=name) for name, colour in colours]
    axes.legend(
        handles=[*lines, *more],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        fontsize="small",
        ncols=2,
        frameon=False,
    )
