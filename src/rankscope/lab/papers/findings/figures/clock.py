"""The picture of N1: the clock of each head, and the stable rank of its change below."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rankscope.figures.style import MISSING, Colour, legend_below, open_frame, shades
from rankscope.lab.judging.selected_runs import Runs, Seeds
from rankscope.lab.papers.findings.claims.clock import BAND, courses, moments

WIDTH, HEIGHT = 2.2, 5.0  # inches of a column, and of the figure


def clock(runs: Runs) -> Figure:
    """The clock of every head of the ViT, and the stable rank of its change, by initial scale.

    A line is one head of the first seed, coloured by block from dark (first) to light (last). Top:
    norm of the bilinear part of the change of K-Q over that of the linearised part; the grey band
    is 0.1 to 10. Bottom: stable rank of the change. A dot marks the first snapshot at which half of
    the fall of the stable rank is done. Heads that never fall have none.
    """
    by_scale = runs.by("scale")
    scales = sorted(by_scale, reverse=True)
    columns = {f"scale {scale:g}": first_seed(by_scale[scale]) for scale in scales}
    return _draw(columns, seed=min(runs.seeds))


def clock_lm(runs: Runs) -> Figure:
    """The clock of every head of the Transformer language model (an observation, no verdict).

    As for the ViT: ratio of the bilinear to the linearised part above, stable rank of the change
    below, a dot where half of the fall is done.
    """
    return _draw({f"seed {seed}": ds for seed, ds in runs.only.items()})


def first_seed(seeds: Seeds) -> xr.Dataset:
    """Return the run of the first seed."""
    ds: xr.Dataset = seeds[min(seeds)]
    return ds


def _draw(columns: dict[str, xr.Dataset], *, seed: int | None = None) -> Figure:
    figure = Figure(figsize=(0.8 + WIDTH * len(columns), HEIGHT), layout="constrained")
    grid = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey="row")
    for (top, bottom), (title, ds) in zip(grid.T, columns.items(), strict=True):
        top.set_title(title, fontsize="medium", loc="left")
        _draw_heads(top, bottom, ds)
        bottom.set_xlabel("training step")
        for axes in (top, bottom):
            open_frame(axes)
    top, bottom = grid[:, 0]
    top.set_yscale("log")
    bottom.set_yscale("log")
    bottom.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0)))
    bottom.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bottom.yaxis.set_minor_formatter(NullFormatter())
    top.set_ylabel("bilinear part /\nlinearised part")
    bottom.set_ylabel("stable rank\nof the change")
    dot = Line2D([], [], color="0.2", marker="o", markersize=3.5, linestyle="")
    dot.set_label("half of the fall is done")
    band = Line2D([], [], color=MISSING, linewidth=7, label="ratio 0.1 to 10")
    blocks = shades(2)
    ends = [
        Line2D([], [], color=colour, label=f"{name} block")
        for colour, name in zip(blocks, ("first", "last"), strict=True)
    ]
    legend_below(figure, [*ends, dot, band])
    figure.suptitle(_title(next(iter(columns.values())), seed), fontsize="medium")
    return figure


def _title(ds: xr.Dataset, seed: int | None) -> str:
    """Return what was measured, which tells the size of the network: "K-Q of 48 heads ..."."""
    queries = ds.isel(product=ds["product_kind"].to_numpy() == "kq")
    heads = f"K-Q of {queries.sizes['product']} heads of width {int(queries['product_r'][0])}"
    return heads if seed is None else f"{heads}, seed {seed}"


def _draw_heads(top: Axes, bottom: Axes, ds: xr.Dataset) -> None:
    heads, steps, ratio, rank = courses(ds)
    marked = moments(ds)
    top.axhspan(*BAND, color=MISSING, alpha=0.5, linewidth=0, zorder=0.5)
    for head, colour in enumerate(colours_of(heads)):
        top.plot(steps, ratio[:, head], color=colour, linewidth=0.6, alpha=0.6)
        bottom.plot(steps, rank[:, head], color=colour, linewidth=0.6, alpha=0.6)
        if not np.isnan(marked.steps[head]):
            at = int(np.searchsorted(steps, marked.steps[head]))
            for axes, course in ((top, ratio), (bottom, rank)):
                axes.plot(steps[at], course[at, head], "o", color=colour, markersize=3, zorder=3)


def colours_of(heads: Sequence[str]) -> list[Colour]:
    """Return the colour of each head: that of its block."""
    blocks = [name.rsplit(".", 2)[0] for name in heads]
    names = list(dict.fromkeys(blocks))
    by_block = dict(zip(names, shades(len(names)), strict=True))
    return [by_block[block] for block in blocks]
