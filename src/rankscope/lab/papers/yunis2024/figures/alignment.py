"""Alignment of neighbouring matrices over training, a row for each network (fig. 3)."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import (
    Line,
    draw_band,
    draw_cells,
    draw_ratio_map,
    ends_of_bar,
    highest_ratio,
    mark_one,
    trimmed,
)
from rankscope.figures.seeds import Read, Setting, average, over_seeds, steps_of
from rankscope.figures.style import CATEGORIES, DARK, legend_below, open_frame
from rankscope.figures.time_axis import TrainingTime
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.quantities import (
    RELATIVE_ALIGNMENT,
    mean_alignment,
    relative_alignment,
    shown_diagonal,
    shown_pair,
)
from rankscope.lab.papers.yunis2024.figures.rows import by_row, draw_brackets, pair_rows
from rankscope.lab.papers.yunis2024.figures.settings import base_settings, time_of
from rankscope.plain_names import plain_pairs

RAW, NORMALISED, CHANCE = DARK, CATEGORIES[1], "0.45"
WIDE, NARROW = 2.4, 1.2  # points
# If whole vectors meet, both are the same: the normalised one then shows as a broad edge.
OVERLAPS = (("alignment_normalized", NORMALISED, WIDE), ("alignment", RAW, NARROW))
WIDTH, HEIGHT = 9.6, 3.1  # inches, of the figure and of a row
WEAK = 0.3  # overlap at which colours end; few reach it
STRONG = 8.0  # ratio at which colours end


def figure_3(runs: Runs) -> Figure:
    """Alignment of singular vectors of neighbouring matrices over training.

    Left: the overlap A_ii of the i-th output direction of one matrix with the i-th input direction
    of the next, for one pair. Middle: a, its mean over the first ten directions, divided by the
    pair's background, for every pair; heads and gates of a layer share a row, which shows their
    mean. The background is the mean overlap of directions that do not belong together, so white
    is chance, red above, blue below. The paper draws a itself, whose level of chance differs from
    pair to pair. Right (not in the paper): a of the pair on the left, with its background and the
    chance level of random directions. The normalised a divides by the lengths of the parts of
    vectors that meet. All networks share their colours, and time is logarithmic. With several seeds
    we show their mean, and bands reach from the lowest to the highest. The paper says that
    alignment is weak, absent at the start, appears early in the top directions, and then diffuses.
    """
    networks = base_settings(runs)
    figure = Figure(figsize=(WIDTH, 1.2 + HEIGHT * len(networks)), layout="constrained")
    grid = figure.subplots(len(networks), 3, squeeze=False, width_ratios=(1, 1.1, 1))
    diagonals = {name: diagonal_of(setting) for name, setting in networks.items()}
    ratios = {name: ratios_of(setting) for name, setting in networks.items()}
    every_ratio = np.concatenate([values.ravel() for values, _ in ratios.values()])
    highest = min(highest_ratio(every_ratio), STRONG)
    for row, (name, setting) in zip(grid, networks.items(), strict=True):
        diagonal = draw_diagonal(row[0], *diagonals[name], highest=WEAK)
        values, time = ratios[name]
        relative = draw_ratio_map(row[1], values, time, highest=highest)
        draw_brackets(row[1], pair_rows(setting.runs[0]))
        draw_alignment_lines(row[2], setting)
        row[0].set_title(f"{name}: {shown_words(setting)}", fontsize="medium", loc="left")
        row[1].set_title(setting.heading, fontsize="medium", loc="left")
        row[2].set_title("the pair on the left", fontsize="medium", loc="left")
    below: dict[str, Any] = {"location": "bottom", "aspect": 30, "pad": 0.01}
    figure.colorbar(diagonal, ax=list(grid[:, 0]), label="overlap $A_{ii}$", extend="max", **below)
    ends = ends_of_bar(every_ratio, highest)
    bar = figure.colorbar(relative, ax=list(grid[:, 1]), extend=ends, **below)
    bar.set_label(f"{RELATIVE_ALIGNMENT} (1: chance)")
    mark_one(bar, highest)
    legend_below(figure, alignment_legend())
    return figure


def diagonal_of(setting: Setting) -> tuple[np.ndarray, TrainingTime]:
    """Return A_ii of the shown pair over (i, step), and the time of its snapshots."""
    steps = steps_of([setting], shown_diagonal)
    values = average(setting, shown_diagonal, steps).to_numpy()
    return trimmed(values).T, time_of([setting], steps)


def ratios_of(setting: Setting) -> tuple[np.ndarray, TrainingTime]:
    """Return a over background over (row, step), and the time of its snapshots."""
    steps = steps_of([setting], relative_alignment)
    values = average(setting, relative_alignment, steps).to_numpy()
    return by_row(values, pair_rows(setting.runs[0])), time_of([setting], steps)


def shown_words(setting: Setting) -> str:
    """Return the plain name of the pair that stands for the network."""
    pair = shown_pair(setting.runs[0])
    (words,) = plain_pairs([str(pair["earlier"].item())], [str(pair["later"].item())])
    return words.label


def draw_diagonal(
    axes: Axes, values: np.ndarray, time: TrainingTime, *, highest: float
) -> QuadMesh:
    """Draw a heat map of A_ii over (i, step), the first direction on top.

    Colours begin at 0 and go with the square root, since most overlaps are small.
    """
    ticks = [1, *range(20, len(values) + 1, 20)]
    axes.set_yticks([i - 1 for i in ticks], labels=[f"{i}" for i in ticks])
    axes.set_ylabel("direction $i$")
    mesh = draw_cells(axes, values, time.edges(), PowerNorm(0.5, 0.0, highest))
    time.draw(axes)
    return mesh


def draw_alignment_lines(axes: Axes, setting: Setting) -> None:
    """Draw a(t) of the shown pair, raw and normalised, with background and chance."""
    pairs = Setting(setting.title, tuple(shown_pair(ds) for ds in setting.runs))
    steps = steps_of([pairs], mean_alignment)
    time = time_of([setting], steps)
    for name, colour, width in OVERLAPS:
        reads: tuple[tuple[Read, Line], ...] = (
            (itemgetter(f"{name}_background"), "--"),
            (partial(mean_alignment, variable=name), "-"),
        )
        for read, style in reads:
            values = over_seeds(pairs, read, steps).dropna("step", how="all")
            x = time_of([setting], values["step"].to_numpy()).values
            draw_band(axes, values, x, colour, style=style, width=width)
    axes.axhline(float(pairs.runs[0]["chance"]), color=CHANCE, linewidth=1, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean overlap $a$")
    time.draw(axes)
    open_frame(axes)


def alignment_legend() -> Sequence[Line2D]:
    """Return the legend of `draw_alignment_lines`."""
    looks: tuple[tuple[str, ColorType, float, Line], ...] = (
        ("$a$", RAW, NARROW, "-"),
        ("background of $a$", RAW, NARROW, "--"),
        ("normalised $a$", NORMALISED, WIDE, "-"),
        ("normalised background", NORMALISED, WIDE, "--"),
        ("chance", CHANCE, 1.0, ":"),
    )
    return [Line2D([], [], label=name, color=c, lw=w, linestyle=s) for name, c, w, s in looks]
