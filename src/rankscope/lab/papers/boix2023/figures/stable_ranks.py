"""Stable rank of the change of attention heads' products (boix2023, figs. 4, 12, 14, 16).

Panels are passed by title. Most show one block of a network.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line
from rankscope.figures.style import BAND, DARK, legend_below, log_axis, panels, shades
from rankscope.lab.papers.boix2023.figures.axes import band_of_heads

KIND_COLOURS = {"K-Q": "#0072b2", "V-O": "#d55e00"}  # blue and red, also with colour blindness
STABLE_RANK = "stable rank of the change"
DOT = 4.5  # points
HOLLOW = "hollow: collapsed, in no line"


class Course(NamedTuple):
    """Stable ranks of heads over time; `head` may include those of several seeds.

    settled: the time at which the training loss settled; None if it did not.
    """

    time: Float[np.ndarray, " step"]
    ranks: Float[np.ndarray, "step head"]
    settled: float | None = None


class Looks(NamedTuple):
    """Colour and style of a line."""

    colour: ColorType
    style: Line = "-"


def stable_ranks_over_time(
    blocks: Mapping[str, Mapping[str, Course]],
    looks: Mapping[str, Looks],
    *,
    unit: str = "step",
    begin: float | None = None,
    settled: str = "training loss settled",
) -> Figure:
    """Draw mean and standard deviation over heads against time, a panel for each block.

    looks: by name of the line. begin: a time to mark by a dotted line. settled: the label of dots,
    which mark where the loss settled. Time is logarithmic: the change has no rank at step 0.
    """
    figure, grid = _block_panels(len(blocks))
    for axes, (title, courses) in zip(grid, blocks.items(), strict=True):
        for name, course in courses.items():
            draw_course(axes, course, looks[name])
        if begin is not None:
            axes.axvline(begin, color=DARK, linewidth=0.8, linestyle=":")
        axes.set_title(title, fontsize="medium")
    _finish(grid, f"{unit} (log scale)")
    drawn = dict.fromkeys(name for courses in blocks.values() for name in courses)
    lines = [
        Line2D([], [], color=looks[name].colour, linestyle=looks[name].style, label=name)
        for name in drawn
    ]
    if begin is not None:
        lines.append(Line2D([], [], color=DARK, linewidth=0.8, linestyle=":"))
        lines[-1].set_label(f"{unit} {begin:g}")
    all_courses = [course for courses in blocks.values() for course in courses.values()]
    legend_below(figure, [*lines, *_settled_dot(all_courses, settled), band_of_heads()])
    return figure


def stable_ranks_by_scale(
    blocks: Mapping[str, Mapping[float, Float[np.ndarray, " head"]]],
    *,
    hollow: Collection[float] = (),
) -> Figure:
    """Draw mean and standard deviation over heads against initial scale (fig. 4).

    hollow: initial scales at which runs collapsed. No line goes through them.
    """
    figure, grid = _block_panels(len(blocks))
    for axes, (title, ranks) in zip(grid, blocks.items(), strict=True):
        counted = [init_scale for init_scale in ranks if init_scale not in hollow]
        means = [ranks[init_scale].mean() for init_scale in counted]
        axes.plot(counted, means, color=DARK, linewidth=1.2)
        for init_scale, heads in ranks.items():
            axes.errorbar(
                init_scale,
                heads.mean(),
                heads.std(),
                fmt="o",
                color=DARK,
                markersize=DOT,
                capsize=3,
                markerfacecolor="white" if init_scale in hollow else DARK,
            )
        axes.set_title(title, fontsize="medium")
    _finish(grid, "initial scale (1: default)")
    for axes in grid:
        axes.set_xticks(sorted({init_scale for ranks in blocks.values() for init_scale in ranks}))
        axes.minorticks_off()
    bar = Line2D([], [], color=DARK, marker="o", markersize=DOT, label="mean of heads, bar: std")
    ring = Line2D([], [], color=DARK, marker="o", linestyle="", markerfacecolor="white")
    ring.set_label(HOLLOW)
    legend_below(figure, [bar, *([ring] if hollow else [])])
    return figure


def stable_ranks_by_block(
    networks: Mapping[str, Sequence[Course]], *, columns: int, unit: str = "step"
) -> Figure:
    """Draw the mean over heads of every block against time, a panel for each network.

    The first block is darkest. Panels stand in rows of `columns` and share axes.
    """
    rows = -(-len(networks) // columns)
    size = (1.2 + 2.7 * min(columns, len(networks)), 0.9 + 2.5 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = panels(figure, len(networks), columns=columns)
    for axes, (title, courses) in zip(grid, networks.items(), strict=True):
        for course, colour in zip(courses, shades(len(courses)), strict=True):
            axes.plot(course.time, course.ranks.mean(1), color=colour, linewidth=1.2)
        axes.set_title(title, fontsize="medium")
    _finish(grid, f"{unit} (log scale)")
    first, *_, last = shades(2)
    ends = {"first block": first, "last block": last}
    legend_below(figure, [Line2D([], [], color=c, label=name) for name, c in ends.items()])
    return figure


def draw_course(axes: Axes, course: Course, looks: Looks) -> None:
    """Draw the mean over heads with its band, and a dot where the loss settled."""
    mean, deviation = course.ranks.mean(1), course.ranks.std(1)
    colour, style = looks
    band = (mean - deviation, mean + deviation)
    axes.fill_between(course.time, *band, color=colour, alpha=BAND, linewidth=0)
    axes.plot(course.time, mean, color=colour, linestyle=style, linewidth=1.4)
    if course.settled is not None:
        height = np.interp(course.settled, course.time, mean)
        axes.plot(course.settled, height, "o", color=colour, markersize=DOT)


def _block_panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = 3 if count <= 6 else 4
    figure = Figure(figsize=(9.5, 0.9 + 2.4 * -(-count // columns)), layout="constrained")
    return figure, panels(figure, count, columns=columns)


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


def _settled_dot(courses: Sequence[Course], label: str) -> list[Line2D]:
    if all(course.settled is None for course in courses):
        return []
    return [Line2D([], [], color=DARK, marker="o", linestyle="", markersize=DOT, label=label)]
