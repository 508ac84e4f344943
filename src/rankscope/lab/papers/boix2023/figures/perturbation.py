"""Perturbed against unperturbed trajectories (boix2023, figs. 9 and 10; claim B5).

Each trial of a run is a perturbation at one time of training. A run has `perturbed_z` and
`unperturbed_z` over (trial, time, coordinate), NaN where a coordinate was negligible, and their
`distance` over (trial, time). Time counts from the perturbation. Coordinates along trial are
`start_time`, `noise` ("independent" or "tied") and `kind` ("plateau" or "newly active").
"""

from itertools import groupby
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.style import DARK, Colour, evenly, open_frame, shades
from rankscope.lab.papers.boix2023.claims.assumptions import BOUND

COLUMNS = 3
LEAST_DISTANCE = 1e-4  # smaller distances are not told apart
DISTANCES = (LEAST_DISTANCE, BOUND, 1, 100)  # ticks


def perturbations(
    ds: xr.Dataset, kind: Literal["plateau", "newly active"], *, title: str = ""
) -> Figure:
    """Draw z after perturbations at plateaus (fig. 9) or as a coordinate becomes active (fig. 10).

    A trial has a panel of z, perturbed solid and unperturbed dashed, and one of their distance over
    the size of the unperturbed z at the end, with the bound of 5%. Rows are kinds of noise, with at
    most three trials each. Time is linear over its first thousandth and logarithmic after it, since
    the return is quick.
    """
    trials = ds.isel(trial=np.flatnonzero(ds["kind"].to_numpy() == kind))
    if trials.sizes["trial"] == 0:
        known = ", ".join(sorted({str(other) for other in ds["kind"].to_numpy()})) or "none"
        raise ValueError(f"this run has no trial of kind {kind!r}; it has {known}")
    rows = trial_rows(trials)
    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(1.2 + 2.7 * columns, 0.8 + 3 * len(rows)), layout="constrained")
    heights = (2, 1) * len(rows)
    grid = figure.subplots(
        2 * len(rows), columns, sharex=True, sharey="row", squeeze=False, height_ratios=heights
    )
    for row, upper, lower in zip(rows, grid[::2], grid[1::2], strict=True):
        draw_row(trials, row, list(upper), list(lower))
    for j in range(columns):  # below the lowest panel of a column may be an empty place
        lowest = max(i for i, row in enumerate(rows) if j < len(row))
        grid[2 * lowest + 1, j].tick_params(axis="x", labelbottom=True, labelsize="small")
    span = float(ds["time"][-1])
    ticks = [0.0, *(span / 10**decades for decades in (3, 2, 1, 0))]
    grid[0, 0].set_xscale("symlog", linthresh=ticks[1])
    grid[0, 0].set_xlim(0, span)
    grid[0, 0].set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    figure.supxlabel("epochs since the perturbation (log scale)", fontsize="medium")
    lines = [
        Line2D([], [], color=DARK, linewidth=1.5, label="perturbed"),
        Line2D([], [], color="black", linewidth=0.8, linestyle="--", label="unperturbed"),
        Line2D(
            [], [], color="black", linewidth=0.8, linestyle=":", label="5% of the size at the end"
        ),
    ]
    # A title of the figure would overlap the legend at its top, so the legend has the title.
    figure.legend(handles=lines, title=title, loc="outside upper center", ncols=3, frameon=False)
    return figure


def trial_rows(ds: xr.Dataset) -> list[list[int]]:
    """Return a row of positions of trials for each noise: at most three, evenly in start time."""
    noise, start = ds["noise"].to_numpy(), ds["start_time"].to_numpy()
    order = sorted(range(len(noise)), key=lambda j: (str(noise[j]), start[j]))
    groups = [list(group) for _, group in groupby(order, key=lambda j: str(noise[j]))]
    return [[group[i] for i in evenly(len(group), COLUMNS)] for group in groups]


def distances_over_size(ds: xr.Dataset) -> xr.DataArray:
    """Return |z - z_ref| over |z_ref| at the end: (trial, time), over the perturbed coordinates.

    Claim B5 reads the end. The size at the end does not come near 0, as that of a coordinate that
    has just become active does.
    """
    end = ds["unperturbed_z"].isel(time=-1)
    distances: xr.DataArray = ds["distance"] / np.sqrt((end**2).sum("coordinate"))
    return distances


def coordinate_colours(ds: xr.Dataset) -> dict[int, Colour]:
    """Return colours of the coordinates perturbed in some trial, the largest darkest."""
    size = abs(ds["perturbed_z"]).max(("trial", "time")).to_numpy()  # NaN where never
    order = [int(i) for i in np.argsort(-size) if not np.isnan(size[i])]
    return dict(zip(order, shades(len(order)), strict=True))


def draw_row(ds: xr.Dataset, row: list[int], upper: list[Axes], lower: list[Axes]) -> None:
    """Draw trials at these positions, and remove panels that are left over."""
    colours = coordinate_colours(ds)
    distances = distances_over_size(ds)
    for j, above, below in zip(row, upper, lower, strict=False):
        trial = ds.isel(trial=j)
        draw_trajectories(above, trial, colours)
        below.plot(trial["time"], distances.isel(trial=j), color=DARK, linewidth=1.2)
        below.axhline(BOUND, color="black", linewidth=0.8, linestyle=":")
        title = f"{trial['noise'].item()} noise, time {trial['start_time'].item():.3g}"
        above.set_title(title, fontsize="small", loc="left")
        open_frame(above)
        open_frame(below)
    for axes in (*upper[len(row) :], *lower[len(row) :]):
        axes.remove()
    top = 2 * max(BOUND, float(distances.max()))
    lower[0].set(yscale="log", ylim=(LEAST_DISTANCE, top))
    ticks = [tick for tick in DISTANCES if tick <= top]
    lower[0].set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks], fontsize="small")
    lower[0].set_yticks([], minor=True)
    lower[0].set_ylabel("distance\n/ size", fontsize="small")
    upper[0].set_ylabel("$z_i$")


def draw_trajectories(axes: Axes, trial: xr.Dataset, colours: dict[int, Colour]) -> None:
    time = trial["time"].to_numpy()
    perturbed = trial["perturbed_z"].transpose("time", "coordinate").to_numpy()
    unperturbed = trial["unperturbed_z"].transpose("time", "coordinate").to_numpy()
    for i in np.flatnonzero(~np.isnan(perturbed).all(axis=0)).tolist():
        axes.plot(time, perturbed[:, i], color=colours[i], linewidth=1.5)
        axes.plot(time, unperturbed[:, i], color="black", linewidth=0.8, linestyle="--")
