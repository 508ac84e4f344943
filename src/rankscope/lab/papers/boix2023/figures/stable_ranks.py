"""Stable rank of the change of attention heads' products (boix2023, figs. 4, 12, 14, 16).

Docstrings of public functions are captions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line
from rankscope.figures.seeds import Setting, number_of_seeds
from rankscope.figures.style import DARK, legend_below, log_axis, open_frame, panels, shades
from rankscope.lab.experiment import TooFewRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.axes import band_of_heads
from rankscope.lab.papers.boix2023.figures.vit_panels import (
    all_collapsed,
    block_numbers,
    counted,
    default_setting,
    draw_heads,
    final_ranks,
    heading,
    label,
    ranks_over_time,
    settings_by_scale,
    title,
)
from rankscope.lab.papers.boix2023.runs import (
    KINDS,
    SETTLED,
    TITLES,
    Kind,
    growth_start,
    time_unit,
    times,
)

KIND_COLOURS = {"kq": "#0072b2", "vo": "#d55e00"}  # blue and red, also with colour blindness
STABLE_RANK = "stable rank of the change"
DOT = 4.5  # points
LEAST_SCALES = 2


def figure_4(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change at the end of training by initial scale, for every block.

    Points are means over the heads of all seeds, bars one standard deviation. Hollow points are
    runs that collapsed. Runs that stopped once their training loss had settled are read there. The
    paper shows K-Q at layers 1, 3 and 5, without saying whether it counts from 0, and announces
    V-O. We count blocks from 1. The paper says that the rank is lower at smaller scales.
    """
    settings = settings_by_scale(runs)
    if len(settings) < LEAST_SCALES:
        raise TooFewRuns(
            f"this figure needs runs of {LEAST_SCALES} initial scales; the results have "
            f"{', '.join(f'{init_scale:g}' for init_scale in settings)}"
        )
    hollow = [init_scale for init_scale in settings if all_collapsed(settings[init_scale])]
    ends = {init_scale: final_ranks(setting, kind) for init_scale, setting in settings.items()}
    figure, grid = _block_panels([title(kind, block) for block in _blocks(settings)])
    for i, axes in enumerate(grid):
        means = {s: ranks[i].mean() for s, ranks in ends.items() if s not in hollow}
        axes.plot(list(means), list(means.values()), color=DARK, linewidth=1.2)
        for init_scale, ranks in ends.items():
            axes.errorbar(
                init_scale,
                ranks[i].mean(),
                ranks[i].std(),
                fmt="o",
                color=DARK,
                markersize=DOT,
                capsize=3,
                markerfacecolor="white" if init_scale in hollow else DARK,
            )
    _finish(grid, "initial scale (1: default)")
    for axes in grid:
        axes.set_xticks(list(settings))
        axes.minorticks_off()
    bar = Line2D([], [], color=DARK, marker="o", markersize=DOT, label="mean of heads, bar: std")
    ring = Line2D([], [], color=DARK, marker="o", linestyle="", markerfacecolor="white")
    ring.set_label("hollow: collapsed, in no line")
    legend_below(figure, [bar, *([ring] if hollow else [])])
    return figure


def ranks_in_training(runs: Runs) -> Figure:
    """Stable rank of the change of K-Q (above) and of V-O (below) over training, for every block.

    Lines are means over the heads of all seeds and bands one standard deviation, at the default
    initial scale. The blocks of a product share an axis; K-Q and V-O do not, since that of V-O
    grows several times as far. Time is logarithmic, since the change has no rank at step 0. Claim
    B7 is about the time from the dotted line, where the learning rates sum to 0.0025, to the end.
    At the dot the training loss of all seeds is below 1e-3. The paper says that the stable rank
    grows gradually.
    """
    setting = default_setting(runs)
    blocks = block_numbers(setting)
    columns = _columns(len(blocks))
    rows = -(-len(blocks) // columns)
    figure = Figure(figsize=(9.5, 1.1 + 2.1 * rows * len(KINDS)), layout="constrained")
    parts = figure.subfigures(len(KINDS), 1, squeeze=False)[:, 0]
    for part, (kind, name) in zip(parts, KINDS.items(), strict=True):
        grid = _titled(panels(part, len(blocks), columns=columns), [title(kind, b) for b in blocks])
        handles = _draw_courses(grid, {name: Courses(setting, kind, KIND_COLOURS[kind])})
    _, *shared = handles
    legend_below(figure, shared)
    return heading(figure, setting, f"heads of {number_of_seeds(len(counted(setting)))}")


def ranks_by_scale(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change over training by initial scale, for every block (not in the paper).

    Lines are means over the heads of all seeds that did not collapse, bands one standard deviation.
    Claim B7 is about scale 1, from the vertical line, where the learning rates sum to 0.0025, to
    the end. At a dot the training loss of all seeds is below 1e-3. Dotted lines are scales at which
    every seed collapsed.
    """
    settings = settings_by_scale(runs)
    lines = {
        label(setting): Courses(setting, kind, colour, ":" if all_collapsed(setting) else "-")
        for setting, colour in zip(settings.values(), shades(len(settings)), strict=True)
    }
    return _over_time([title(kind, block) for block in _blocks(settings)], lines)


def ranks_by_variant(runs: Runs) -> Figure:
    """Stable rank of the change over training for variants of the network (not in the paper).

    Columns are networks of other sizes, and one that learns from augmented images. K-Q is above and
    V-O below, at the default initial scale. Each line is the mean over the heads of one block, in
    all seeds; the first block is darkest. Section 5 of the paper says that models of different
    sizes show similar trends.
    """
    settings = [default_setting(runs.of(network)) for network in runs.networks]
    columns = len(settings)
    figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 2.5 * len(KINDS)), layout="constrained")
    grid = panels(figure, len(KINDS) * columns, columns=columns)
    shown = [
        (kind, *named) for kind in KINDS for named in zip(runs.networks, settings, strict=True)
    ]
    for axes, (kind, network, setting) in zip(grid, shown, strict=True):
        course = ranks_over_time(setting, kind)
        for ranks, colour in zip(course.ranks, shades(len(course.ranks)), strict=True):
            axes.plot(course.time, ranks.mean(1), color=colour, linewidth=1.2)
        name = TITLES.get(("", network), network)
        axes.set_title(f"{name}, {KINDS[kind]}", fontsize="medium", loc="left")
        open_frame(axes)
    _finish(grid, f"{time_unit(settings[0].runs[0])} (log scale)")
    first, last = shades(2)
    ends = {"first block": first, "last block": last}
    legend_below(figure, [Line2D([], [], color=c, label=name) for name, c in ends.items()])
    return figure


class Courses(NamedTuple):
    """Stable ranks of one kind of product over training, drawn in one colour in every panel."""

    setting: Setting
    kind: Kind
    colour: ColorType
    style: Line = "-"


def _over_time(titles: Sequence[str], lines: Mapping[str, Courses]) -> Figure:
    """Draw mean and standard deviation over heads against time, a panel for each block."""
    figure, grid = _block_panels(titles)
    legend_below(figure, _draw_courses(grid, lines))
    return figure


def _draw_courses(grid: Sequence[Axes], lines: Mapping[str, Courses]) -> list[Line2D]:
    """Draw lines into the panels of all blocks; return the entries of a legend.

    Time is logarithmic: the change has no rank at step 0. Dots mark where the loss settled.
    """
    first_run = next(iter(lines.values())).setting.runs[0]
    unit, start = time_unit(first_run), growth_start(first_run)
    handles: list[Line2D] = []
    settled = False
    for name, (setting, kind, colour, style) in lines.items():
        course = ranks_over_time(setting, kind)
        for axes, ranks in zip(grid, course.ranks, strict=True):
            draw_heads(axes, course.time, ranks.T, colour, style=style)
            if course.settled is not None:
                height = np.interp(course.settled, course.time, ranks.mean(1))
                axes.plot(course.settled, height, "o", color=colour, markersize=DOT)
        handles.append(Line2D([], [], color=colour, linestyle=style, label=name))
        settled |= course.settled is not None
    if start is not None:
        begin, name = times(first_run)[start], "claim B7 begins"
        for axes in grid:
            line = axes.axvline(begin, color=DARK, linewidth=0.8, linestyle=":", label=name)
        handles.append(line)
    if settled:
        dot = Line2D([], [], color=DARK, marker="o", linestyle="", markersize=DOT)
        dot.set_label(f"training loss < {SETTLED:g}")
        handles.append(dot)
    _finish(grid, f"{unit} (log scale)")
    return [*handles, band_of_heads()]


def _blocks(settings: Mapping[float, Setting]) -> list[int]:
    return block_numbers(next(iter(settings.values())))


def _block_panels(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    columns = _columns(len(titles))
    figure = Figure(figsize=(9.5, 0.9 + 2.4 * -(-len(titles) // columns)), layout="constrained")
    return figure, _titled(panels(figure, len(titles), columns=columns), titles)


def _columns(count: int) -> int:
    return 3 if count <= 6 else 4


def _titled(grid: list[Axes], titles: Sequence[str]) -> list[Axes]:
    for axes, text in zip(grid, titles, strict=True):
        axes.set_title(text, fontsize="medium", loc="left")
        open_frame(axes)
    return grid


def _finish(grid: Sequence[Axes], label: str) -> None:
    """Label the axes; ranks begin just below 1, the least a stable rank can be."""
    high = max(axes.get_ylim()[1] for axes in grid)
    for axes in grid:
        log_axis(axes)
        axes.set_ylim(1 - 0.05 * (high - 1), high)
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel(label)
        if axes.yaxis.get_tick_params()["labelleft"]:
            axes.set_ylabel(STABLE_RANK)
