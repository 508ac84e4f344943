"""Several networks side by side, each averaged over seeds (yunis2024, figs. 1-3)."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.figures.over_time import (
    THIN,
    Line,
    draw_band,
    draw_heat_map,
    draw_ratio_map,
    draw_shades,
    draw_spectrum,
    ends_of_bar,
    highest_ratio,
    label_rows,
    label_time,
    mark_one,
    number_rows,
    trimmed,
)
from rankscope.figures.seeds import Setting, average, over_seeds, steps_of
from rankscope.figures.style import COLOURS, legend_below
from rankscope.figures.training import (
    heat_map_height,
    select,
    whole_matrices,
    with_all_directions,
)
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.settings import base_settings

Steps = Int[np.ndarray, " step"]

RAW, NORMALISED, CHANCE = COLOURS(0.0), COLOURS(0.7), "0.45"
WIDE, NARROW = 2.8, 1.2  # points
# If whole vectors meet, both are the same: the normalised one then shows as a broad edge.
OVERLAPS = (("alignment_normalized", NORMALISED, WIDE), ("alignment", RAW, NARROW))
MEAN_ALIGNMENT = "mean alignment $a$, $i$ ≤ 10"
RELATIVE_ALIGNMENT = "$a$ / background (1: chance)"
SHORT_TIME = "training step, by snapshot"
HEADING = 40  # characters that fit above a panel


def figure_1(runs: Runs) -> Figure:
    """Singular values of one weight matrix in the middle of each network, over training.

    Each line is one singular value, darker if larger. With several seeds it is their mean, and pale
    bands around the 1st, 4th, 16th and 64th reach from the lowest to the highest seed. Snapshots
    stand at equal distances; ticks give the training step. "Base" marks the paper's decay of
    figures 1-3. The paper says that large values grow out of proportion to small ones.
    """
    networks = base_settings(runs)
    figure = Figure(figsize=(1 + 3.9 * len(networks), 3.8), layout="constrained")
    for axes, (name, setting) in zip(row_of(figure, networks), networks.items(), strict=True):
        steps = steps_of([setting], shown_spectrum)
        draw_shades(axes, draw_spectrum(axes, over_seeds(setting, shown_spectrum, steps)))
        axes.set_title(title_of(name, setting, shown(setting, "matrix")), fontsize="medium")
        axes.set_ylabel("singular value")
        label_time(axes, steps, most=5, label=SHORT_TIME)
    return figure


def figure_2(runs: Runs) -> Figure:
    """Normalised effective rank of every weight matrix over training.

    A row is a matrix, the first of the network on top. A column is a snapshot. Each network has its
    own colour scale. The effective rank is exp of the entropy of the singular values as shares of
    their sum, here divided by min(m, n). With several seeds we show their mean. The paper says that
    it falls in nearly all matrices.
    """
    networks = base_settings(runs)
    rows = max(len(whole_matrices(setting.runs[0])) for setting in networks.values())
    size = (1 + 4.4 * len(networks), heat_map_height(rows))
    figure = Figure(figsize=size, layout="constrained")
    for axes, (name, setting) in zip(row_of(figure, networks), networks.items(), strict=True):
        steps = steps_of([setting], ranks)
        mesh = draw_heat_map(axes, average(setting, ranks, steps).to_numpy().T)
        label_rows(axes, whole_matrices(setting.runs[0]))
        axes.set_title(title_of(name, setting), fontsize="medium")
        label_time(axes, steps, most=5, label=SHORT_TIME)
        figure.colorbar(mesh, ax=axes, label="effective rank / min(m, n)", aspect=THIN)
    return figure


def figure_3(runs: Runs) -> Figure:
    """Alignment of singular vectors of neighbouring matrices over training.

    First row: the overlap A_ii of the i-th output direction of one matrix with the i-th input
    direction of the next, for one pair. Second row: its mean a over the first ten directions, for
    every pair in the order of the network. Pairs of different width have different levels of
    chance, so bands in this map need not be alignment. Third row (not in the paper): a divided by
    the pair's background, the mean overlap of directions that do not belong together. White is
    chance, red above, blue below. Most rules on alignment judge this number. Fourth row (not in the
    paper): a of the pair of the first row, raw and normalised, with the background of both and the
    chance level of random directions. The normalised a divides by the lengths of the parts of
    vectors that meet. With several seeds we show their mean, and bands reach from the lowest to the
    highest. The paper says that alignment is weak, absent at the start, appears early in the top
    directions, and then diffuses.
    """
    networks = base_settings(runs)
    pairs = max(setting.runs[0].sizes["pair"] for setting in networks.values())
    heights = (3.0, heat_map_height(pairs), heat_map_height(pairs), 2.4)
    figure = Figure(figsize=(1 + 4.6 * len(networks), sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(4, len(networks), squeeze=False, height_ratios=heights)
    for column, (name, setting) in zip(grid.T, networks.items(), strict=True):
        steps = steps_of([setting], shown_diagonal)
        mesh = draw_diagonal(column[0], average(setting, shown_diagonal, steps).to_numpy())
        figure.colorbar(mesh, ax=column[0], label="alignment $A_{ii}$", aspect=20)
        every_pair = average(setting, mean_alignment, steps).to_numpy().T
        mesh = draw_heat_map(column[1], every_pair, lowest=0.0)
        figure.colorbar(mesh, ax=column[1], label=MEAN_ALIGNMENT, aspect=THIN)
        draw_ratios(figure, [column[2]], [setting], steps, aspect=THIN)
        for axes in column[1:3]:
            label_rows(axes, [str(pair) for pair in setting.runs[0]["pair"].to_numpy()])
        draw_alignment_lines(column[3], setting, steps)
        column[3].set_ylim(bottom=0)
        titles = (
            title_of(name, setting, shown(setting, "pair")),
            f"{name}: every pair",
            f"{name}: every pair, over its background",
            f"{name}\n{shown(setting, 'pair')}",
        )
        for axes, title in zip(column, titles, strict=True):
            axes.set_title(title, fontsize="medium")
            label_time(axes, steps, most=4, label=SHORT_TIME)
    grid[0, 0].set_ylabel("direction $i$")
    grid[3, 0].set_ylabel("mean alignment $a$")
    legend_below(figure, shown_pair_legend())
    return figure


def draw_ratios(
    part: Figure | SubFigure,
    column: Sequence[Axes],
    settings: Sequence[Setting],
    steps: Steps,
    *,
    size: str = "medium",
    **bar_options: Any,
) -> None:
    """Draw every pair's a(t) / background for each setting, on one scale with its bar."""
    values = [average(setting, relative_alignment, steps).to_numpy().T for setting in settings]
    all_ratios = np.concatenate([ratios.ravel() for ratios in values])
    highest = highest_ratio(all_ratios)
    for axes, ratios in zip(column, values, strict=True):
        mesh = draw_ratio_map(axes, ratios, highest=highest)
    ends = ends_of_bar(all_ratios, highest)
    bar = part.colorbar(mesh, ax=list(column), extend=ends, **bar_options)
    bar.set_label(RELATIVE_ALIGNMENT, fontsize=size)
    mark_one(bar, highest, size=size)


def draw_diagonal(
    axes: Axes, values: np.ndarray, *, highest: float | None = None, size: str = "medium"
) -> QuadMesh:
    """Draw a heat map of A_ii over (step, i), the first direction on top; colours begin at 0."""
    values = trimmed(values).T
    number_rows(axes, len(values), most=6, size=size)
    return draw_heat_map(axes, values, lowest=0.0, highest=highest)


def draw_alignment_lines(axes: Axes, setting: Setting, steps: Steps) -> None:
    """Draw a(t) of the shown pair, raw and normalised, with background and chance."""
    pairs = Setting(setting.title, tuple(shown_pair(ds) for ds in setting.runs))
    for name, colour, width in OVERLAPS:
        background = over_seeds(pairs, itemgetter(f"{name}_background"), steps)
        draw_band(axes, background, colour, style="--", width=width)
        mean = over_seeds(pairs, partial(mean_alignment, variable=name), steps)
        draw_band(axes, mean, colour, width=width)
    axes.axhline(float(pairs.runs[0]["chance"]), color=CHANCE, linewidth=1, linestyle=":")
    axes.margins(x=0)


def shown_pair_legend() -> list[Line2D]:
    """Return the legend of `draw_alignment_lines`."""
    return [*alignment_legend("$a$ of the shown pair"), chance_line("chance level of $a$")]


def alignment_legend(raw: str, *, marks: tuple[str, str] = ("", "")) -> list[Line2D]:
    """Return lines of alignment (solid) and background (dashed). raw: name of the first."""
    looks: tuple[tuple[str, ColorType, float, Line], ...] = (
        (raw, RAW, NARROW, "-"),
        ("background of $a$", RAW, NARROW, "--"),
        ("normalised $a$", NORMALISED, WIDE, "-"),
        ("normalised background", NORMALISED, WIDE, "--"),
    )
    mark_of = dict(zip(("-", "--"), marks, strict=True))
    return [
        Line2D(
            [], [], color=c, lw=w, linestyle=style, marker=mark_of[style], ms=2.5 + w, label=name
        )
        for name, c, w, style in looks
    ]


def chance_line(label: str) -> Line2D:
    return Line2D([], [], color=CHANCE, linewidth=1, linestyle=":", label=label)


def row_of(figure: Figure, networks: Mapping[str, Setting]) -> list[Axes]:
    return list(figure.subplots(1, len(networks), squeeze=False)[0])


def title_of(name: str, setting: Setting, *more: str) -> str:
    """Return a title: the network, its runs, and what of them is shown."""
    return "\n".join([name, textwrap.fill(setting.heading, HEADING), *more])


def shown(setting: Setting, dim: str) -> str:
    """Return the name of the matrix or pair that stands for the network."""
    return str(setting.runs[0].attrs[f"shown_{dim}"])


def shown_spectrum(ds: xr.Dataset) -> xr.DataArray:
    """(step, k): singular values of the matrix that stands for the network."""
    return select(ds, "matrix", ds.attrs["shown_matrix"])["singular_values"]


def shown_pair(ds: xr.Dataset) -> xr.Dataset:
    """Select the pair that stands for the network."""
    return select(ds, "pair", ds.attrs["shown_pair"])


def shown_diagonal(ds: xr.Dataset) -> xr.DataArray:
    """(step, i): A_ii of the pair that stands for the network, where all are stored."""
    return with_all_directions(shown_pair(ds))["alignment"]


def ranks(ds: xr.Dataset) -> xr.DataArray:
    """(step, matrix): normalised effective rank of whole matrices."""
    ranks: xr.DataArray = ds.rankscope.whole().rankscope.normalized_effective_rank()
    return ranks


def mean_alignment(ds: xr.Dataset, variable: str = "alignment") -> xr.DataArray:
    """(step, pair): the mean a of A_ii over i <= min(10, R), raw or normalised."""
    mean: xr.DataArray = ds.rankscope.mean_alignment(of=variable)
    return mean


def relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a over the pair's background; NaN where there is none."""
    ratio: xr.DataArray = ds.rankscope.relative_alignment()
    return ratio
