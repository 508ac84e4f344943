"""A network that learns true labels beside one that learns random ones (yunis2024, fig. 7)."""

from collections.abc import Sequence

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
from rankscope.lab.papers.yunis2024.figures.networks import (
    SHORT_TIME,
    Steps,
    alignment,
    background,
    ranks,
    shown,
    shown_spectrum,
)


def labels_compared(settings: Sequence[Setting]) -> Figure:
    """Draw singular values of one matrix, ranks of all and alignment of all pairs, by labels.

    Rows are labels, and a column shares its vertical axis. Dashed lines are backgrounds of pairs.
    """
    steps = steps_of(settings)
    figure = Figure(figsize=(13, 1.4 + 2.9 * len(settings)), layout="constrained")
    grid = figure.subplots(len(settings), 3, squeeze=False)
    for row, setting in zip(grid, settings, strict=True):
        shade = draw_spectrum(row[0], over_seeds(setting, shown_spectrum, steps))
        draw_layers(row[1], setting, ranks, steps)
        draw_layers(row[2], setting, background, steps, style="--")
        draw_layers(row[2], setting, alignment, steps)
        row[0].set_title(f"{setting.heading}: singular values of {shown(setting, 'matrix')}")
        row[1].set_title("effective rank / min(m, n)")
        row[2].set_title("mean alignment $a$, $i$ ≤ 10")
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
