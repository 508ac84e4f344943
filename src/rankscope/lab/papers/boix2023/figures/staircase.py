"""Flow trajectories against Algorithm 1's staircase (boix2023, Theorem 4.5; our own figure)."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.style import DARK, IDLE, LOG_FROM, Colour, draw_lines, mixed, shades
from rankscope.lab.papers.boix2023.figures.axes import (
    RESCALED_TIME,
    SYMBOLS,
    log_inverse,
    power_of_ten,
)
from rankscope.lab.papers.boix2023.figures.toy import Flows
from rankscope.lab.papers.boix2023.runs import KINDS

LEAST_LOSS = 1e-6  # of the first loss; smaller losses are rounding errors
WIDE = 4  # points, lines of Algorithm 1
LABEL_WIDTH = 0.171  # inches


def flow_and_staircase(algorithm: xr.Dataset, flows: Flows) -> Figure:
    """Draw flows (thin) over Algorithm 1 (wide and pale), in three panels.

    1. z with theta^k, constant from T_k to T_{k+1}.
    2. The log coordinate y / log(1/alpha) with 1 - b^k, linear in between.
    3. The loss with that of theta^k.

    Vertical lines mark the T_k, with the coordinate that wins in its colour. Coordinates that never
    win are grey. flows: by log10(alpha), the largest first; the smallest is drawn strongest.
    """
    figure = Figure(figsize=(9, 9), layout="constrained")
    upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))
    draw_entries(upper, algorithm, flows)
    draw_log_coordinates(middle, algorithm, flows)
    draw_losses(lower, algorithm, flows)
    kinds = set(algorithm["kind"].to_numpy())
    names = [symbol for kind, symbol in SYMBOLS.items() if kind in kinds]
    upper.set_ylabel(f"entries of {' and '.join(names)}")
    lower.set_xlabel(RESCALED_TIME)
    mark_stages(figure, [upper, middle, lower], algorithm, flows)
    return figure


def entries_and_staircase(algorithm: xr.Dataset, flows: Flows) -> Figure:
    """Draw the first panel of `flow_and_staircase` alone."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel=RESCALED_TIME, ylabel="entries of the products")
    draw_entries(axes, algorithm, flows)
    mark_stages(figure, [axes], algorithm, flows)
    axes.set_xlim(left=0.8 * float(algorithm["stage_time"][1]))  # nothing happens before
    return figure


def end_of(flows: Flows) -> float:
    return max(float(ds["time"][-1]) for ds in flows.values())


def winners_of(algorithm: xr.Dataset, flows: Flows) -> list[tuple[float, int]]:
    """Return (T_k, winner) of each stage that the flows reach: when and whose it begins."""
    times, winners = (algorithm[f"stage_{name}"].to_numpy().tolist() for name in ("time", "winner"))
    end = end_of(flows)
    return [(time, i) for time, i in zip(times, winners, strict=True) if i >= 0 and time <= end]


def winner_colours(algorithm: xr.Dataset, flows: Flows) -> dict[int, Colour]:
    """Return colours of the coordinates that win, in that order; one may leave and win again."""
    order = dict.fromkeys(i for _, i in winners_of(algorithm, flows))
    return dict(zip(order, shades(len(order)), strict=True))


def draw_entries(axes: Axes, algorithm: xr.Dataset, flows: Flows) -> None:
    colours = winner_colours(algorithm, flows)
    z = algorithm["stage_z"].transpose("stage", "coordinate").to_numpy()
    for i, colour in reversed(list(colours.items())):  # the next to win is on top at 0
        draw_steps(axes, algorithm, z[:, i], end_of(flows), colour)
    for opacity, ds in zip(opacities(flows), flows.values(), strict=True):
        values = ds["z"].dropna("time", how="all").transpose("time", "coordinate")
        draw_lines(axes, values["time"].to_numpy(), values.to_numpy(), colours, opacity=opacity)


def draw_log_coordinates(axes: Axes, algorithm: xr.Dataset, flows: Flows) -> None:
    """Draw y / log(1/alpha), which tends to 1 - log_alpha(u + v); 1 and -1 mean active."""
    colours = winner_colours(algorithm, flows)
    b = algorithm["stage_b"].transpose("stage", "coordinate").to_numpy()
    for i, colour in reversed(list(colours.items())):
        draw_wide(axes, algorithm["stage_time"].to_numpy(), 1 - b[:, i], colour)
    for opacity, (log10_alpha, ds) in zip(opacities(flows), flows.items(), strict=True):
        y = ds["y"].dropna("time", how="all").transpose("time", "coordinate")
        scaled = y.to_numpy() / log_inverse(log10_alpha)
        draw_lines(axes, y["time"].to_numpy(), scaled, colours, opacity=opacity)
    for level in (-1, 1):
        axes.axhline(level, color=DARK, linewidth=0.8, linestyle=":")
    axes.set_ylabel(r"$y_i \,/\, \log(1/\alpha)$ and $1 - b_i^k$")


def draw_losses(axes: Axes, algorithm: xr.Dataset, flows: Flows) -> None:
    levels, end = algorithm["stage_loss"].to_numpy(), end_of(flows)
    draw_steps(axes, algorithm, levels, end, to_rgba(DARK))
    for opacity, ds in zip(opacities(flows), flows.values(), strict=True):
        axes.plot(ds["time"], ds["loss"], color=DARK, linewidth=1.2, alpha=opacity)
    reached = levels[algorithm["stage_time"].to_numpy() <= end]
    lowest = min(reached.min(), *(float(ds["loss"].min()) for ds in flows.values()))
    highest = max(float(ds["loss"].max()) for ds in flows.values())
    if highest > LOG_FROM * lowest:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7 * max(lowest, LEAST_LOSS * levels[0]))
    else:
        margin = 0.05 * (highest - lowest)
        axes.set_ylim(lowest - margin, highest + margin)
    axes.set_ylabel("loss")


def draw_steps(
    axes: Axes, algorithm: xr.Dataset, levels: Num[np.ndarray, " stage"], end: float, colour: Colour
) -> None:
    """Draw the level of stage k from T_k to T_{k+1}; the last as far as it is known and shown.

    A stage that did not come to rest has no T_{k+1} (NaN) and no level.
    """
    times, until = algorithm["stage_time"].to_numpy(), algorithm["stage_until"].to_numpy()
    last = times[-1] if np.isnan(until[-1]) else min(until[-1], max(end, times[-1]))
    edges = np.append(times, last)
    draw_wide(axes, np.repeat(edges, 2)[1:-1], np.repeat(levels, 2), colour)


def draw_wide(
    axes: Axes, x: Num[np.ndarray, " n"], y: Num[np.ndarray, " n"], colour: Colour
) -> None:
    axes.plot(x, y, color=pale(colour), linewidth=WIDE, solid_joinstyle="miter", zorder=1.8)


def pale(colour: Colour) -> Colour:
    # Mixed, not transparent, since many lines lie on top of each other at 0.
    return mixed(colour, 1.0, 0.65)


def opacities(flows: Flows) -> list[float]:
    return [float(opacity) for opacity in np.linspace(1, 0.3, len(flows))[::-1]]


def mark_stages(
    figure: Figure, panels: Sequence[Axes], algorithm: xr.Dataset, flows: Flows
) -> None:
    """Draw lines at the T_k, the names of winners above them, and the legend.

    Names are moved apart if they would overlap, each tied to its T_k.
    """
    winners, end = winners_of(algorithm, flows), end_of(flows)
    for axes in panels:
        for time, _ in winners:
            axes.axvline(time, color=IDLE, linewidth=0.6, zorder=1)
    panels[0].set_xlim(0, end)
    names, colours = _plain_names(algorithm), winner_colours(algorithm, flows)
    gap = LABEL_WIDTH * end / figure.get_figwidth()
    for (time, i), place in zip(
        winners, spread(np.array([time for time, _ in winners]), gap), strict=True
    ):
        panels[0].annotate(
            names[i],
            xy=(time, 1),
            xytext=(place, 1.06),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="center",
            va="bottom",
            fontsize="small",
            color=mixed(colours[i], 0.0, 0.3),
            arrowprops={
                "arrowstyle": "-",
                "color": IDLE,
                "linewidth": 0.6,
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )
    lines = [Line2D([], [], color=pale(to_rgba(DARK)), linewidth=WIDE, label="Algorithm 1")]
    for opacity, log10_alpha in zip(opacities(flows), flows, strict=True):
        name = rf"flow, $\alpha$ = {power_of_ten(log10_alpha)}"
        lines.append(Line2D([], [], color=DARK, linewidth=1.2, alpha=opacity, label=name))
    figure.legend(handles=lines, loc="outside lower center", ncols=5, frameon=False)


def _plain_names(algorithm: xr.Dataset) -> list[str]:
    """Return names of the coordinates as people write them, numbered as in their labels.

    "V-O 30", or "V-O 30, layer 0, head 1" where there are several heads.
    """
    columns = [algorithm[name].to_numpy() for name in ("kind", "index", "layer", "head")]
    places = list(zip(*columns, strict=True))
    several = len({(layer, head) for _, _, layer, head in places}) > 1
    return [
        f"{KINDS[kind]} {index}" + (f", layer {layer}, head {head}" if several else "")
        for kind, index, layer, head in places
    ]


def spread(places: Num[np.ndarray, " n"], gap: float) -> Num[np.ndarray, " n"]:
    """Return ascending places moved as little as possible to be at least `gap` apart.

    This is least squares under x[i+1] - x[i] >= gap: neighbours that overlap are pooled around
    their mean.
    """
    blocks: list[list[float]] = []  # places less i * gap, which only have to ascend
    for i, place in enumerate(places):
        blocks.append([float(place) - i * gap])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = np.array([np.mean(block) for block in blocks for _ in block])
    apart: Num[np.ndarray, " n"] = level + gap * np.arange(len(places))
    return apart
