"""Panels whose horizontal axis is training: lines with bands over seeds, and heat maps.

A snapshot stands at the time at which it was taken: see `time_axis`.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import QuadMesh
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.typing import ColorType

from rankscope.figures.style import BAND, COLOURS, MISSING, MOST_TICKS, RATIOS, evenly
from rankscope.figures.time_axis import TrainingTime

Line = Literal["-", "--", "-.", ":"]

MOST_LINES = 100
MOST_LABELS = 60
BANDED = {4**power for power in range(8)}
LEADING = 10  # leading values that are always drawn
THIN = 35  # length of a thin colour bar over its width
INDEX = "index (1 = largest)"


def draw_spectrum(
    axes: Axes, S: xr.DataArray, time: TrainingTime, *, most: int = MOST_LINES
) -> Normalize:
    """Draw singular values over (seed, step, k) as lines, darker where larger.

    Lines are means over seeds. The 1st, 4th, 16th, 64th, ... value has a band from least to most;
    more bands would cover each other on a linear axis. Returns the scale of the shades.
    """
    means = trimmed(S.mean("seed").to_numpy())
    low, high = S.min("seed").to_numpy(), S.max("seed").to_numpy()
    k = means.shape[1]
    shade, x = Normalize(1, max(k, 2)), time.values
    for i in reversed(chosen_values(k, most)):  # the largest last, on top
        colour = COLOURS(shade(i + 1))
        if S.sizes["seed"] > 1 and i + 1 in BANDED:
            axes.fill_between(x, low[:, i], high[:, i], color=colour, alpha=BAND, linewidth=0)
        axes.plot(x, means[:, i], color=colour, linewidth=0.8, marker=point_or_line(means))
    axes.set_ylim(bottom=0)
    time.draw(axes)
    return shade


def chosen_values(k: int, most: int) -> list[int]:
    """Return at most `most` positions of k values: the leading ones, others evenly spread."""
    leading = min(k, LEADING)
    return [*range(leading), *(leading + i for i in evenly(k - leading, most - leading))]


def draw_shades(axes: Axes, shade: Normalize, *others: Axes) -> None:
    """Draw the colour bar of singular values beside `axes` and the `others` below it."""
    mappable = ScalarMappable(shade, COLOURS)
    bar = axes.figure.colorbar(mappable, ax=[axes, *others], label=INDEX, aspect=THIN)
    bar.ax.invert_yaxis()


def draw_band(
    axes: Axes,
    values: xr.DataArray,
    x: Num[np.ndarray, " step"],
    colour: ColorType,
    *,
    style: Line = "-",
    width: float = 1.4,
    label: str = "",
) -> None:
    """Draw the mean over seeds of (seed, step) as a line, in a band from least to most."""
    mean = values.mean("seed").to_numpy()
    if values.sizes["seed"] > 1:
        low, high = values.min("seed").to_numpy(), values.max("seed").to_numpy()
        axes.fill_between(x, low, high, color=colour, alpha=BAND, linewidth=0)
    marker = point_or_line(mean)
    axes.plot(x, mean, color=colour, linestyle=style, linewidth=width, marker=marker, label=label)


def draw_heat_map(
    axes: Axes,
    values: Num[np.ndarray, "row step"],
    time: TrainingTime,
    *,
    lowest: float | None = None,
    highest: float | None = None,
) -> QuadMesh:
    """Draw one cell per row and snapshot, the first row on top; NaN is grey."""
    mesh = draw_cells(axes, values, time.edges(), Normalize(lowest, highest), COLOURS)
    time.draw(axes)
    return mesh


def draw_ratio_map(
    axes: Axes, values: Num[np.ndarray, "row step"], time: TrainingTime, *, highest: float
) -> QuadMesh:
    """Draw a heat map of ratios on a log scale: 1 is white, `highest` and its inverse darkest."""
    scale = LogNorm(1 / highest, highest, clip=True)
    mesh = draw_cells(axes, values, time.edges(), scale, RATIOS)
    time.draw(axes)
    return mesh


def draw_cells(
    axes: Axes,
    values: Num[np.ndarray, "row column"],
    edges: Num[np.ndarray, " edge"],
    scale: Normalize,
    colours: Colormap = COLOURS,
) -> QuadMesh:
    """Draw a table of values as colours, the first row on top. edges: those of the columns."""
    rows = np.arange(len(values) + 1) - 0.5
    cells = np.ma.masked_invalid(values)
    mesh = axes.pcolormesh(edges, rows, cells, cmap=colours, norm=scale, rasterized=True)
    axes.set_facecolor(MISSING)
    axes.invert_yaxis()
    return mesh


def highest_ratio(ratios: Num[np.ndarray, "..."]) -> float:
    """Return the end of a scale of ratios: the highest one, at least 2.

    Low ratios do not widen the scale. A pair with one direction may come near 0 by chance, and all
    other pairs would fade.
    """
    return float(ratios[np.isfinite(ratios)].max(initial=2.0))


def ends_of_bar(ratios: Num[np.ndarray, "..."], highest: float) -> Literal["min", "neither"]:
    """Return "min" if some ratios lie below the colour bar, which ends at 1 / `highest`."""
    return "min" if np.nanmin(ratios, initial=1.0) < 1 / highest else "neither"


def ratio_ticks(highest: float) -> list[float]:
    """Return ticks at 1 and powers on both sides of it: of 2, of 4 from 20 on, of 10 from 200."""
    base = 2 if highest < 20 else 4 if highest < 200 else 10
    most = int(math.log(highest, base) + 1e-9)
    return [float(base) ** power for power in range(-most, most + 1)]


def mark_one(bar: Colorbar, highest: float) -> None:
    """Put ticks on the colour bar of ratios, and a line across it at 1."""
    ticks = ratio_ticks(highest)
    bar.set_ticks(ticks, labels=[f"1/{1 / tick:g}" if tick < 1 else f"{tick:g}" for tick in ticks])
    bar.minorticks_off()
    across = bar.ax.axvline if bar.orientation == "horizontal" else bar.ax.axhline
    across(1.0, color="black", linewidth=1.5)


def share_heights(column: Sequence[Axes], *, bottom: float | None = None) -> None:
    """Give finished panels one vertical range, from `bottom` if given."""
    limits = [axes.get_ylim() for axes in column]
    low = min(low for low, _ in limits) if bottom is None else bottom
    for axes in column:
        axes.set_ylim(low, max(high for _, high in limits))


def label_rows(axes: Axes, names: list[str]) -> None:
    """Name the rows of a heat map, or every second or third where names would overlap."""
    ticks = range(0, len(names), math.ceil(len(names) / MOST_LABELS))
    axes.set_yticks(ticks, labels=[names[i] for i in ticks], fontsize="x-small")


def number_rows(axes: Axes, count: int, *, most: int = MOST_TICKS, size: str = "medium") -> None:
    """Number some rows of a heat map, counted from 1."""
    ticks = evenly(count, most)
    axes.set_yticks(ticks, labels=[str(i + 1) for i in ticks], fontsize=size)


def point_or_line(values: Num[np.ndarray, " step ..."]) -> str:
    """Return the marker "." for one snapshot, through which no line can be seen, else none."""
    return "." if len(values) == 1 else ""


def trimmed(values: Num[np.ndarray, "step k"]) -> Num[np.ndarray, "step r"]:
    """Return the columns without the NaN that pad a short spectrum to the longest of the run."""
    measured = np.flatnonzero(~np.isnan(values).all(axis=0))
    return values[:, : measured[-1] + 1 if len(measured) else 0]
