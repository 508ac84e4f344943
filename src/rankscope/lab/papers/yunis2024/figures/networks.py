"""Several networks side by side, each averaged over seeds (yunis2024, figs. 1-3)."""

import textwrap
from collections.abc import Mapping
from functools import partial
from operator import itemgetter

import numpy as np
import xarray as xr
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
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
from rankscope.figures.training import heat_map_height, select, whole_matrices

Steps = Int[np.ndarray, " step"]

RAW, NORMALISED, CHANCE = COLOURS(0.0), COLOURS(0.7), "0.45"
WIDE, NARROW = 2.8, 1.2  # points
MEAN_ALIGNMENT = "mean alignment $a$, $i$ ≤ 10"
RELATIVE_ALIGNMENT = "$a$ / background (1: chance)"
SHORT_TIME = "training step, by snapshot"
HEADING = 40  # characters that fit above a panel


def spectra_of_networks(networks: Mapping[str, Setting]) -> Figure:
    """Draw singular values of the shown matrix of each network over time (fig. 1)."""
    figure = Figure(figsize=(1 + 3.9 * len(networks), 3.8), layout="constrained")
    for axes, (name, setting) in zip(row_of(figure, networks), networks.items(), strict=True):
        steps = steps_of([setting])
        draw_shades(axes, draw_spectrum(axes, over_seeds(setting, shown_spectrum, steps)))
        axes.set_title(title_of(name, setting, shown(setting, "matrix")), fontsize="medium")
        axes.set_ylabel("singular value")
        label_time(axes, steps, most=5, label=SHORT_TIME)
    return figure


def ranks_of_networks(networks: Mapping[str, Setting]) -> Figure:
    """Draw heat maps of normalised effective rank, depth against time, by network (fig. 2)."""
    rows = max(len(whole_matrices(setting.runs[0])) for setting in networks.values())
    size = (1 + 4.4 * len(networks), heat_map_height(rows))
    figure = Figure(figsize=size, layout="constrained")
    for axes, (name, setting) in zip(row_of(figure, networks), networks.items(), strict=True):
        steps = steps_of([setting])
        mesh = draw_heat_map(axes, average(setting, ranks, steps).to_numpy().T)
        label_rows(axes, whole_matrices(setting.runs[0]))
        axes.set_title(title_of(name, setting), fontsize="medium")
        label_time(axes, steps, most=5, label=SHORT_TIME)
        figure.colorbar(mesh, ax=axes, label="effective rank / min(m, n)", aspect=THIN)
    return figure


def alignment_of_networks(networks: Mapping[str, Setting]) -> Figure:
    """Draw the alignment of one pair and of every pair, by network (fig. 3).

    1. A_ii of the shown pair.
    2. a(t) of every pair. Pairs of different width have different levels of chance.
    3. a(t) / background of every pair.
    4. a(t) of the shown pair, raw and normalised, with background and chance.

    The paper has the first two rows. The background is the mean overlap of directions that do not
    belong together. The normalised a divides by the lengths of the parts of vectors that meet.
    """
    pairs = max(setting.runs[0].sizes["pair"] for setting in networks.values())
    heights = (3.0, heat_map_height(pairs), heat_map_height(pairs), 2.4)
    figure = Figure(figsize=(1 + 4.6 * len(networks), sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(4, len(networks), squeeze=False, height_ratios=heights)
    for column, (name, setting) in zip(grid.T, networks.items(), strict=True):
        steps = steps_of([setting])
        draw_shown_pair(column[0], setting, steps)
        draw_every_pair(column[1], column[2], setting, steps)
        draw_alignment_lines(column[3], setting, steps)
        column[3].set_ylim(bottom=0)
        column[0].set_title(title_of(name, setting, shown(setting, "pair")), fontsize="medium")
        column[3].set_title(f"{name}\n{shown(setting, 'pair')}", fontsize="medium")
        column[1].set_title(f"{name}: every pair", fontsize="medium")
        column[2].set_title(f"{name}: every pair, over its background", fontsize="medium")
        for axes in column:
            label_time(axes, steps, most=4, label=SHORT_TIME)
    grid[0, 0].set_ylabel("direction $i$")
    grid[3, 0].set_ylabel("mean alignment $a$")
    legend_below(figure, alignment_legend())
    return figure


def draw_shown_pair(axes: Axes, setting: Setting, steps: Steps) -> None:
    """Draw A_ii of the shown pair with its colour bar."""
    diagonal = average(setting, shown_diagonal, steps).to_numpy()
    mesh = draw_diagonal(axes, diagonal, highest=None)
    axes.figure.colorbar(mesh, ax=axes, label="alignment $A_{ii}$", aspect=20)


def draw_every_pair(raw: Axes, relative: Axes, setting: Setting, steps: Steps) -> None:
    """Draw a(t) of every pair, and a(t) / background, each with its colour bar."""
    mesh = draw_heat_map(raw, average(setting, alignment, steps).to_numpy().T, lowest=0.0)
    raw.figure.colorbar(mesh, ax=raw, label=MEAN_ALIGNMENT, aspect=THIN)
    ratios = average(setting, relative_alignment, steps).to_numpy().T
    highest = highest_ratio(ratios)
    mesh = draw_ratio_map(relative, ratios, highest=highest)
    ends = ends_of_bar(ratios, highest)
    bar = relative.figure.colorbar(
        mesh, ax=relative, label=RELATIVE_ALIGNMENT, aspect=THIN, extend=ends
    )
    mark_one(bar, highest)
    for axes in (raw, relative):
        label_rows(axes, [str(pair) for pair in setting.runs[0]["pair"].to_numpy()])


def draw_diagonal(
    axes: Axes, values: np.ndarray, *, highest: float | None, size: str = "medium"
) -> QuadMesh:
    """Draw a heat map of A_ii over (step, i), the first direction on top; colours begin at 0."""
    values = trimmed(values).T
    number_rows(axes, len(values), most=6, size=size)
    return draw_heat_map(axes, values, lowest=0.0, highest=highest)


def draw_alignment_lines(axes: Axes, setting: Setting, steps: Steps) -> None:
    """Draw a(t) of the shown pair, raw and normalised, with background and chance."""
    pairs = Setting(setting.title, tuple(shown_pair(ds) for ds in setting.runs))
    # If whole vectors meet, both are the same: the normalised one then shows as a broad edge.
    looks = (("alignment_normalized", NORMALISED, WIDE), ("alignment", RAW, NARROW))
    for name, colour, width in looks:
        background = over_seeds(pairs, itemgetter(f"{name}_background"), steps)
        draw_band(axes, background, colour, style="--", width=width)
        mean = over_seeds(pairs, partial(mean_alignment, variable=name), steps)
        draw_band(axes, mean, colour, width=width)
    axes.axhline(float(pairs.runs[0]["chance"]), color=CHANCE, linewidth=1, linestyle=":")
    axes.margins(x=0)


def alignment_legend() -> list[Line2D]:
    looks: tuple[tuple[str, ColorType, float, Line], ...] = (
        ("$a$ of the shown pair", RAW, NARROW, "-"),
        ("background of $a$", RAW, NARROW, "--"),
        ("normalised $a$", NORMALISED, WIDE, "-"),
        ("normalised background", NORMALISED, WIDE, "--"),
        ("chance level of $a$", CHANCE, 1.0, ":"),
    )
    return [
        Line2D([], [], color=colour, linewidth=width, linestyle=style, label=name)
        for name, colour, width, style in looks
    ]


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
    """(step, i): A_ii of the pair that stands for the network."""
    return shown_pair(ds)["alignment"]


def ranks(ds: xr.Dataset) -> xr.DataArray:
    """(step, matrix): normalised effective rank of whole matrices."""
    whole = ds.sel(matrix=whole_matrices(ds))
    ranks: xr.DataArray = whole.rankscope.normalized_effective_rank()
    return ranks.transpose("step", "matrix")


def alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a(t) of every pair."""
    return mean_alignment(ds).transpose("step", "pair")


def relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a(t) / background of every pair; NaN where there is no background."""
    return alignment(ds) / background(ds)


def background(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): mean overlap of directions that do not belong together."""
    return ds["alignment_background"].transpose("step", "pair")


def mean_alignment(ds: xr.Dataset, variable: str = "alignment") -> xr.DataArray:
    """Return the mean of A_ii over i <= min(10, R), raw or normalised."""
    mean: xr.DataArray = ds.rankscope.mean_alignment(of=variable)
    return mean
