"""Spectra of the products of attention heads, and of their change (boix2023).

Figures 1, 2, 5, 11, 13, 15. Panels are passed by title; the caller chooses blocks and heads.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import INDEX
from rankscope.figures.style import (
    BAND,
    Colour,
    draw_lines,
    draw_order_bar,
    legend_below,
    log_axis,
    shades,
)
from rankscope.lab.papers.boix2023.figures.axes import band_of_heads

# Readers with colour blindness tell them apart by lightness, and the start by its dashes.
START, END = "#d55e00", "#00734f"
GREENS = colormaps["YlGn"]
LEADING = 20  # singular values drawn over training


class HeadSpectra(NamedTuple):
    """Singular values of one head's product at the start, and of its change by moment."""

    start: Float[np.ndarray, " r"]
    changes: Mapping[str, Float[np.ndarray, " k"]]


class SpectraOfHeads(NamedTuple):
    """Singular values of the products of several heads at the start, and of their change."""

    start: Float[np.ndarray, "head r"]
    change: Float[np.ndarray, "head k"]


class Values(NamedTuple):
    """Singular values over time, whose unit is "epoch" or "step"."""

    time: Float[np.ndarray, " step"]
    S: Float[np.ndarray, "step k"]
    unit: str = "step"


def normalised_spectra(heads: Mapping[str, HeadSpectra], *, columns: int = 3) -> Figure:
    """Draw spectra divided by their largest value, a panel for each head (figs. 1, 11, 13, 15).

    Indices are logarithmic, since the first few change most. A change of zero is not drawn.
    """
    figure, grid = _panels(len(heads), columns, height=2.5)
    for axes, (title, head) in zip(grid.flat, heads.items(), strict=False):
        for S, colour in zip(head.changes.values(), greens(len(head.changes)), strict=True):
            if S.any():
                _draw_spectrum(axes, S / S[0], colour)
        length = max(len(S) for S in head.changes.values())
        _draw_spectrum(axes, _with_zeros(head.start, length) / head.start[0], START, style="--")
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(0, 1.02)
    _label_indices(grid, "singular value / largest")
    moments = list(dict.fromkeys(moment for head in heads.values() for moment in head.changes))
    legend_below(figure, [_start_line(), *_moment_lines(moments)])
    return figure


def change_against_start(blocks: Mapping[str, SpectraOfHeads], *, columns: int = 3) -> Figure:
    """Draw mean and standard deviation over heads of the spectra of change and start (fig. 5)."""
    figure, grid = _panels(len(blocks), columns, height=2.4)
    for axes, (title, (start, change)) in zip(grid.flat, blocks.items(), strict=False):
        _draw_heads(axes, _with_zeros(start, change.shape[1]), START, style="--")
        _draw_heads(axes, change, END)
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(bottom=0)
    _label_indices(grid, "singular value")
    change_line = Line2D([], [], color=END, label="its change at the end")
    legend_below(figure, [_start_line(), change_line, band_of_heads()])
    return figure


def leading_values(heads: Mapping[str, Values], *, columns: int = 3) -> Figure:
    """Draw the largest singular values over time, a panel with its own axes per head (fig. 2)."""
    figure, grid = _panels(len(heads), columns, height=2.5)
    count = min(LEADING, *(values.S.shape[1] for values in heads.values()))
    for axes, (title, values) in zip(grid.flat, heads.items(), strict=False):
        draw_lines(axes, values.time, values.S[:, :count], dict(enumerate(shades(count))))
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel(values.unit)
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
    for axes in grid[:, 0]:
        axes.set_ylabel("singular value of the change")
    draw_order_bar(figure, list(grid.flat), count, INDEX)
    return figure


def greens(count: int) -> list[Colour]:
    """Return greens from pale, for early, to dark, for late."""
    return [GREENS(place) for place in np.linspace(0.35, 1, max(count, 2))][-count:]


def _panels(count: int, columns: int, *, height: float) -> tuple[Figure, np.ndarray]:
    """Return panels that share no axes, since blocks differ in size and runs in length."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    size = (0.8 + 2.9 * columns, 0.9 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid: np.ndarray = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, grid


def _label_indices(grid: np.ndarray, values: str) -> None:
    for axes in grid.flat:
        log_axis(axes)
    for axes in grid[-1]:
        axes.set_xlabel(f"{INDEX}, log scale")
    for axes in grid[:, 0]:
        axes.set_ylabel(values)


def _with_zeros(S: Float[np.ndarray, "*head r"], length: int) -> Float[np.ndarray, "*head k"]:
    """Append the zeros of a product of inner width r, which has at most r other values."""
    missing = max(length - S.shape[-1], 0)
    return np.pad(S, [*[(0, 0)] * (S.ndim - 1), (0, missing)])


def _draw_spectrum(
    axes: Axes, S: Float[np.ndarray, " k"], colour: ColorType, *, style: str = "-"
) -> None:
    axes.plot(np.arange(1, len(S) + 1), S, color=colour, linestyle=style, linewidth=1.4)


def _draw_heads(
    axes: Axes, S: Float[np.ndarray, "head k"], colour: ColorType, *, style: str = "-"
) -> None:
    mean, deviation = S.mean(0), S.std(0)
    index = np.arange(1, S.shape[1] + 1)
    axes.fill_between(
        index, mean - deviation, mean + deviation, color=colour, alpha=BAND, linewidth=0
    )
    _draw_spectrum(axes, mean, colour, style=style)


def _start_line() -> Line2D:
    return Line2D([], [], color=START, linestyle="--", label="product at the start")


def _moment_lines(moments: list[str]) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, label=f"its change, {moment}")
        for moment, colour in zip(moments, greens(len(moments)), strict=True)
    ]
