"""Figures of the toy attention head over time (boix2023, figs. 3, 6, 7, 8).

Flows are passed by log10(alpha), since alpha may be too small for a float, the largest first. A
coordinate has the same colour in all panels: its place in the order of activation.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.style import (
    DARK,
    IDLE,
    Colour,
    draw_lines,
    draw_order_bar,
    open_frame,
    panels,
    shades,
)
from rankscope.lab.papers.boix2023.figures.axes import RESCALED_TIME, SYMBOLS, power_of_ten
from rankscope.lab.papers.boix2023.figures.full_head import PRODUCTS, draw_products, value_colours
from rankscope.lab.papers.boix2023.runs import Kind

Flows = Mapping[float, xr.Dataset]


def toy_attention(diagonal: xr.Dataset, full: xr.Dataset) -> Figure:
    """Draw V-O, K-Q and loss over time, diagonal weights above full ones (fig. 3)."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    grid = figure.subplots(2, 3)
    upper, lower = (list(row) for row in grid)
    colours = activation_colours(diagonal)
    for axes, kind in zip(upper, PRODUCTS, strict=False):
        draw_entries(axes, diagonal, kind, colours)
        axes.set_ylabel(f"entries of {SYMBOLS[kind]}")
    draw_order_bar(figure, upper[:2], len(colours), "order of activation")
    draw_products(lower[:2], full)
    draw_order_bar(figure, lower[:2], len(value_colours(full)), "index (1 = largest)")
    rows = ((upper, diagonal, "diagonal weights"), (lower, full, "full weights, aligned teacher"))
    letters = iter("abcdef")
    for row, ds, weights in rows:
        draw_loss(row[2], ds)
        row[2].set_ylabel("loss")
        alpha = power_of_ten(ds.attrs["log10_alpha"])
        for axes in row:
            title = rf"({next(letters)}) {weights}, $\alpha$ = {alpha}"
            axes.set_title(title, loc="left", fontsize="small")
            axes.set_xlabel(RESCALED_TIME)
            axes.margins(x=0)
            open_frame(axes)
    return figure


def loss_by_alpha(flows: Flows) -> Figure:
    """Draw the loss against rescaled time, a panel for each alpha (fig. 6)."""
    *_, (log10_smallest, smallest) = flows.items()
    figure, grid = alpha_panels(flows)
    for axes, ds in zip(grid, flows.values(), strict=True):
        (wide,) = axes.plot(smallest["time"], smallest["loss"], color=IDLE, linewidth=3)
        draw_loss(axes, ds)
    figure.supylabel("loss", fontsize="medium")
    name = rf"for comparison, $\alpha$ = {power_of_ten(log10_smallest)}"
    figure.legend([wide], [name], loc="outside upper center", frameon=False)
    return figure


def entries_by_alpha(flows: Flows, kind: Kind) -> Figure:
    """Draw entries of K-Q (fig. 7) or V-O (fig. 8) over time, a panel for each alpha."""
    *_, smallest = flows.values()
    colours = activation_colours(smallest)
    figure, grid = alpha_panels(flows)
    for axes, ds in zip(grid, flows.values(), strict=True):
        draw_entries(axes, ds, kind, colours)
    figure.supylabel(f"entries of {SYMBOLS[kind]}", fontsize="medium")
    draw_order_bar(figure, grid, len(colours), "order of activation")
    return figure


def alpha_panels(flows: Flows) -> tuple[Figure, list[Axes]]:
    rows = -(-len(flows) // 3)
    figure = Figure(figsize=(9, 0.8 + 2.1 * rows), layout="constrained")
    grid = panels(figure, len(flows), columns=3)
    for axes, log10_alpha in zip(grid, flows, strict=True):
        axes.set_title(rf"$\alpha$ = {power_of_ten(log10_alpha)}", fontsize="medium", loc="left")
        open_frame(axes)
    grid[0].set_xlim(0, max(float(ds["time"][-1]) for ds in flows.values()))
    figure.supxlabel(RESCALED_TIME, fontsize="medium")
    return figure, grid


def activation_colours(ds: xr.Dataset) -> dict[int, Colour]:
    """Return colours by position of the coordinates that become active, in that order."""
    entered = ds["crossing_coordinate"].to_numpy()[ds["crossing_entered"].to_numpy() == 1]
    order = dict.fromkeys(int(i) for i in entered)  # a coordinate may leave and return
    return dict(zip(order, shades(len(order)), strict=True))


def draw_entries(axes: Axes, ds: xr.Dataset, kind: Kind, colours: Mapping[int, Colour]) -> None:
    positions = np.flatnonzero(ds["kind"].to_numpy() == kind).tolist()
    stored = ds["z"].dropna("time", how="all").transpose("time", "coordinate")
    z = stored.to_numpy()[:, positions]
    shown = {positions.index(i): colour for i, colour in colours.items() if i in positions}
    draw_lines(axes, stored["time"].to_numpy(), z, shown)


def draw_loss(axes: Axes, ds: xr.Dataset) -> None:
    axes.plot(ds["time"], ds["loss"], color=DARK, linewidth=1.2)
