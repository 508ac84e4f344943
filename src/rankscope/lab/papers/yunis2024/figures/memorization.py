"""A network that learns true labels beside one that learns random ones (yunis2024, fig. 7)."""

from collections.abc import Sequence
from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.over_time import (
    Line,
    draw_band,
    draw_spectrum,
    share_heights,
)
from rankscope.figures.seeds import Read, Setting, over_seeds, steps_of
from rankscope.figures.style import DARK, open_frame, shades
from rankscope.figures.training import whole_matrices
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.quantities import (
    NER,
    mean_alignment,
    ranks,
    shown_spectrum,
)
from rankscope.lab.papers.yunis2024.figures.settings import setting, time_of
from rankscope.plain_names import plain_names, plain_pairs


def figure_7(runs: Runs) -> Figure:
    """A multilayer perceptron that learns true labels (top) and random labels (bottom).

    The columns show singular values of one middle matrix, normalised effective rank of each matrix,
    and mean overlap a of each neighbouring pair with its background (dashed). Both rows share their
    axes; time is logarithmic. With several seeds, lines are means and bands reach from the lowest
    to the highest. The paper says that with true labels the middle layers have lower rank and stay
    aligned, while with random labels alignment comes and fades.
    """
    by_labels = runs.of("mlp").by("labels")
    settings = [setting(f"{labels} labels", by_labels[labels]) for labels in ("true", "random")]
    figure = Figure(figsize=(9.6, 0.8 + 2.7 * len(settings)), layout="constrained")
    grid = figure.subplots(len(settings), 3, squeeze=False)
    for row, labelled in zip(grid, settings, strict=True):
        steps = steps_of([labelled], shown_spectrum)
        spectra = over_seeds(labelled, shown_spectrum, steps)
        draw_spectrum(row[0], spectra, time_of([labelled], steps))
        draw_layers(row[1], labelled, ranks)
        draw_layers(row[2], labelled, itemgetter("alignment_background"), style="--")
        draw_layers(row[2], labelled, mean_alignment)
        (words,) = plain_names([str(labelled.runs[0].attrs["shown_matrix"])])
        row[0].set_title(f"{labelled.heading}: {words.label}", fontsize="medium", loc="left")
        for axes, label in zip(row, ("singular value", NER, "mean overlap $a$"), strict=True):
            axes.set_ylabel(label)
            open_frame(axes)
    for column, bottom in zip(grid.T, (0.0, None, 0.0), strict=True):
        share_heights(list(column), bottom=bottom)
    first = settings[0].runs[0]
    name_lines(grid[0, 1], [name.label for name in plain_names(whole_matrices(first))])
    ends = [list(map(str, first[end].to_numpy())) for end in ("earlier", "later")]
    background = Line2D([], [], color=DARK, linestyle="--", label="background")
    name_lines(grid[0, 2], [pair.label for pair in plain_pairs(*ends)], background)
    return figure


def draw_layers(axes: Axes, setting: Setting, read: Read, *, style: Line = "-") -> None:
    """Draw what `read` returns over (step, layer): a line with its band for each layer."""
    steps = steps_of([setting], read)
    values, time = over_seeds(setting, read, steps), time_of([setting], steps)
    for j, colour in enumerate(shades(values.shape[-1])):
        draw_band(axes, values[..., j], time.values, colour, style=style)
    time.draw(axes)


def name_lines(axes: Axes, names: Sequence[str], *more: Line2D) -> None:
    """Write the names of lines into the panel, darkest first."""
    colours = zip(names, shades(len(names)), strict=True)
    lines = [Line2D([], [], color=colour, label=name) for name, colour in colours]
    axes.legend(handles=[*lines, *more], fontsize="x-small", frameon=False, loc="best")
