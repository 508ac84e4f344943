"""Figures of the toy attention head over time (boix2023, figs. 3, 6, 7, 8).

Runs at several alpha are passed by log10(alpha), since alpha may be too small for a float. A
coordinate has the same colour in all panels: its place in the order of activation.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.style import DARK, IDLE, Colour, draw_lines, draw_order_bar, panels, shades
from rankscope.lab.papers.boix2023.figures.axes import RESCALED_TIME, SYMBOLS, power_of_ten
from rankscope.lab.papers.boix2023.figures.full_head import draw_products, value_colours


def toy_attention(diagonal: xr.Dataset | None = None, full: xr.Dataset | None = None) -> Figure:
    """Draw V-O, K-Q and loss over time, diagonal weights above full ones (fig. 3).

    Lines are diagonal entries above and singular values below. Entries that become active have a
    colour. One of the two runs may be left out.
    """
    if diagonal is None and full is None:
        raise ValueError("expected a diagonal run, a full-matrix run or both, got neither")
    rows = (diagonal is not None) + (full is not None)
    figure = Figure(figsize=(10, 0.4 + 2.6 * rows), layout="constrained")
    grid = figure.subplots(rows, 3, squeeze=False)
    if diagonal is not None:
        draw_diagonal_row(figure, list(grid[0]), diagonal)
    if full is not None:
        draw_full_row(figure, list(grid[-1]), full)
    for letter, axes in zip("abcdef", grid.ravel(), strict=False):
        axes.set_title(f"({letter})", loc="left", fontsize="medium")
        axes.set_xlabel(RESCALED_TIME)
        axes.margins(x=0)
    return figure


def draw_diagonal_row(figure: Figure, row: list[Axes], ds: xr.Dataset) -> None:
    colours = activation_colours(ds)
    for axes, kind in zip(row, ("vo", "kq"), strict=False):
        draw_entries(axes, ds, kind, colours)
        axes.set_ylabel(f"entries of {SYMBOLS[kind]}")
    draw_order_bar(figure, row[:2], len(colours), "order of activation")
    draw_loss(row[2], ds)
    row[2].set_ylabel("loss")
    name_row(row, "diagonal weights", ds)


def draw_full_row(figure: Figure, row: list[Axes], ds: xr.Dataset) -> None:
    draw_products(row[:2], ds)
    draw_order_bar(figure, row[:2], len(value_colours(ds)), "index (1 = largest)")
    draw_loss(row[2], ds)
    row[2].set_ylabel("loss")
    name_row(row, "full weights", ds)


def name_row(row: list[Axes], weights: str, ds: xr.Dataset) -> None:
    alpha = power_of_ten(ds.attrs["log10_alpha"])
    for axes in row:
        axes.set_title(rf"{weights}, $\alpha$ = {alpha}", fontsize="medium")


def loss_by_alpha(runs: Mapping[float | int, xr.Dataset]) -> Figure:
    """Draw the loss against rescaled time, a panel for each alpha (fig. 6).

    The pale line in each panel is the run at the smallest alpha, to which the others converge. The
    axis need not begin at 0, since training may end early.
    """
    runs = from_the_largest_alpha(runs)
    log10_smallest, smallest = list(runs.items())[-1]
    figure, grid = alpha_panels(runs)
    for axes, ds in zip(grid, runs.values(), strict=True):
        (wide,) = axes.plot(smallest["time"], smallest["loss"], color=IDLE, linewidth=3)
        draw_loss(axes, ds)
    figure.supylabel("loss", fontsize="medium")
    name = rf"for comparison, $\alpha$ = {power_of_ten(log10_smallest)}"
    figure.legend([wide], [name], loc="outside upper center", frameon=False)
    return figure


def entries_by_alpha(
    runs: Mapping[float | int, xr.Dataset], kind: Literal["kq", "vo", "z"]
) -> Figure:
    """Draw entries of K-Q ("kq", fig. 7) or V-O ("vo", fig. 8) over time, a panel for each alpha.

    Entries that become active at the smallest alpha have a colour, by their order among all kinds.
    """
    runs = from_the_largest_alpha(runs)
    colours = activation_colours(list(runs.values())[-1])
    figure, grid = alpha_panels(runs)
    for axes, ds in zip(grid, runs.values(), strict=True):
        draw_entries(axes, ds, kind, colours)
    figure.supylabel(f"entries of {SYMBOLS[kind]}", fontsize="medium")
    draw_order_bar(figure, grid, len(colours), "order of activation")
    return figure


def alpha_panels(runs: Mapping[float | int, xr.Dataset]) -> tuple[Figure, list[Axes]]:
    rows = -(-len(runs) // 3)
    figure = Figure(figsize=(9, 0.8 + 2.1 * rows), layout="constrained")
    grid = panels(figure, len(runs), columns=3)
    for axes, log10_alpha in zip(grid, runs, strict=True):
        axes.set_title(rf"$\alpha$ = {power_of_ten(log10_alpha)}", fontsize="medium")
    end = max(float(ds["time"][-1]) for ds in runs.values())
    grid[0].set_xlim(0, end)
    figure.supxlabel(RESCALED_TIME, fontsize="medium")
    return figure, grid


def from_the_largest_alpha(
    runs: Mapping[float | int, xr.Dataset],
) -> dict[float | int, xr.Dataset]:
    """Return the runs by descending log10(alpha)."""
    if not runs or max(runs) >= 0:
        raise ValueError(
            f"expected runs by log10(alpha), a negative number, got {list(runs) or 'no run'}"
        )
    return dict(sorted(runs.items(), reverse=True))


def activation_colours(ds: xr.Dataset) -> dict[int, Colour]:
    """Return colours by position of the coordinates that become active, in that order."""
    entered = ds["crossing_coordinate"].to_numpy()[ds["crossing_entered"].to_numpy() == 1]
    order = dict.fromkeys(int(i) for i in entered)  # a coordinate may leave and return
    return dict(zip(order, shades(len(order)), strict=True))


def draw_entries(axes: Axes, ds: xr.Dataset, kind: str, colours: Mapping[int, Colour]) -> None:
    positions = np.flatnonzero(ds["kind"].to_numpy() == kind).tolist()
    if not positions:
        known = ", ".join(sorted({str(other) for other in ds["kind"].to_numpy()}))
        raise ValueError(f"this run has no coordinate of kind {kind!r}; it has {known}")
    z = ds["z"].transpose("time", "coordinate").to_numpy()[:, positions]
    shown = {positions.index(i): colour for i, colour in colours.items() if i in positions}
    draw_lines(axes, ds["time"].to_numpy(), z, shown)


def draw_loss(axes: Axes, ds: xr.Dataset) -> None:
    axes.plot(ds["time"], ds["loss"], color=DARK, linewidth=1.2)
