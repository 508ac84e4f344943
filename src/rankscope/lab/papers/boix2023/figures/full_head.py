"""Singular values of a head with full matrices over time (boix2023, fig. 3 d-f; claim B6)."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.style import (
    Colour,
    draw_lines,
    draw_order_bar,
    numbered,
    open_frame,
    shades,
)
from rankscope.lab.papers.boix2023.figures.axes import RESCALED_TIME, SYMBOLS
from rankscope.lab.papers.boix2023.runs import Kind

PRODUCTS: tuple[Kind, ...] = ("vo", "kq")  # in the order of the paper's panels
VISIBLE = 0.01  # of the tallest value; lower lines cannot be told from the axis


def singular_value_rises(ds: xr.Dataset, rises: xr.Dataset) -> Figure:
    """Draw singular values over time with a dot at each half-rise, and below when each rose.

    rises: `half_rise`, `rise_10` and `rise_90` over (product, k), in the time of the run; NaN where
    a value did not rise.
    """
    risen = np.flatnonzero(rises["half_rise"].notnull().any("product").to_numpy())
    rises = rises.isel(k=slice(0, risen[-1] + 1 if len(risen) else 0))
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    upper, lower = (list(row) for row in figure.subplots(2, 2, sharex=True, height_ratios=(3, 2)))
    draw_products(upper, ds)
    draw_order_bar(figure, [*upper, *lower], len(value_colours(ds)), "index (1 = largest)")
    for axes, strip, product in zip(upper, lower, PRODUCTS, strict=True):
        draw_half_rises(axes, ds.sel(product=product), rises.sel(product=product))
        draw_bars(strip, value_colours(ds), rises.sel(product=product))
        strip.set(xlabel=RESCALED_TIME, ylabel="index $k$\n(10-90% of its rise)")
        axes.margins(x=0)
    return figure


def draw_products(row: Sequence[Axes], ds: xr.Dataset) -> None:
    """Draw the singular values of V-O on the first of two panels, of K-Q on the second.

    Values too small to be seen beside those of the other product lie flat at 0.
    """
    tallest = float(ds["singular_values"].max())
    for axes, product in zip(row, PRODUCTS, strict=True):
        S = ds["singular_values"].sel(product=product).transpose("time", "k").to_numpy()
        draw_lines(axes, ds["time"].to_numpy(), S, value_colours(ds))
        axes.set_ylabel(f"singular values of {SYMBOLS[product]}")
        own = float(np.nanmax(S, initial=0.0))
        axes.set_ylim(0, 1.05 * (own if own > VISIBLE * tallest else tallest) or 1.0)
        open_frame(axes)


def value_colours(ds: xr.Dataset) -> dict[int, Colour]:
    """Return colours by position along k, for values that can be seen in either product."""
    tallest = ds["singular_values"].max(("time", "product")).to_numpy()
    count = int((tallest > VISIBLE * tallest[0]).sum())
    return dict(enumerate(shades(count)))


def draw_half_rises(axes: Axes, ds: xr.Dataset, rises: xr.Dataset) -> None:
    S = ds["singular_values"].transpose("time", "k").to_numpy()
    for i, time in enumerate(rises["half_rise"].to_numpy()):
        height = np.interp(time, ds["time"].to_numpy(), S[:, i])
        axes.plot(time, height, "o", color="white", markeredgecolor="black", markersize=5, zorder=3)


def draw_bars(axes: Axes, colours: dict[int, Colour], rises: xr.Dataset) -> None:
    bounds = (rises[name].to_numpy() for name in ("rise_10", "half_rise", "rise_90"))
    for i, (start, half, end) in enumerate(zip(*bounds, strict=True)):
        colour = colours.get(i, "0.5")
        axes.plot([start, end], [i + 1, i + 1], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot(half, i + 1, "|", color="black", markersize=11)
    if rises["half_rise"].isnull().all():
        axes.text(0.5, 0.5, "none has risen by the end", transform=axes.transAxes, ha="center")
    count = rises.sizes["k"]
    axes.set(yticks=numbered(count), ylim=(max(count, 1) + 0.5, 0.5))
