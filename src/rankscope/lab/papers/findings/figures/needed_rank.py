"""The picture of N2: the rank that the change of the heads needs, by initial scale and decay."""

from collections.abc import Mapping, Sequence
from statistics import median_low

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from rankscope.figures.style import COLOURS, MISSING
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.findings.claims.needed_rank import (
    by_decay,
    needed_ranks,
    rank_cell,
    why_untold,
)
from rankscope.lab.training.head_cuts import CUTS, Cut, CutAccuracies

WIDTH, HEIGHT = 9.5, 2.9  # inches
TITLES: dict[Cut, str] = {
    "kq": "K-Q alone cut to rank r",
    "vo": "V-O alone cut to rank r",
    "both": "both cut to rank r",
}
DARK_BELOW = 0.6  # of the colour scale: numbers on darker cells are white
# r* of every seed by weight decay and initial scale.
Cells = Mapping[tuple[float, float], Sequence[float]]


def needed_rank(runs: Runs) -> Figure:
    """Smallest rank r of the heads' change that keeps 99% of the held-out accuracy gained.

    The change of each head's slices of W_Q and W_K (left), of W_V and W_O (middle) or of all four
    (right) is cut to rank r, and the rest stays as trained. Columns are factors of the default
    initial weights, rows weight decays. Each cell has the median over seeds and, where seeds
    differ, their range. Grey cells have no run that can tell.
    """
    decays = by_decay(runs)
    factors = sorted({float(key.variant["scale"]) for key in runs})
    largest = largest_rank(runs)
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    grid = figure.subplots(1, len(CUTS), sharey=True)
    norm = LogNorm(1, max(2 * largest, 2))
    for axes, cut in zip(grid, CUTS, strict=True):
        cells = {
            (decay, float(key.variant["scale"])): [
                needed_ranks(ds)[cut] for ds in of_decay[key].values() if not why_untold(ds)
            ]
            for decay, of_decay in decays.items()
            for key in of_decay
        }
        _draw(axes, cells, list(decays), factors, largest=largest, norm=norm)
        axes.set_title(TITLES[cut], fontsize="medium", loc="left")
        axes.set_xlabel("initial scale (1: default)")
    grid[0].set_ylabel("weight decay")
    figure.suptitle(f"Rank that keeps 99% of the accuracy gained; ranks to {largest} were tried")
    return figure


def largest_rank(runs: Runs) -> int:
    """Return the largest rank that was measured in any run; 1 if none was."""
    measured = (CutAccuracies.of_run(ds) for key in runs for ds in runs[key].values())
    return max((int(a.ranks[-1]) for a in measured if a is not None), default=1)


def _draw(
    axes: Axes,
    cells: Cells,
    decays: Sequence[float],
    factors: Sequence[float],
    *,
    largest: int,
    norm: LogNorm,
) -> None:
    middle = np.full((len(decays), len(factors)), np.nan)
    for (decay, factor), ranks in cells.items():
        if not ranks:
            continue
        row, column = decays.index(decay), factors.index(factor)
        low, rank, high = min(ranks), median_low(ranks), max(ranks)
        middle[row, column] = min(rank, 2 * largest)  # one step above the largest that was tried
        text = str(rank_cell(rank, largest))
        light = float(norm(middle[row, column])) > DARK_BELOW
        colour = "black" if light else "white"
        axes.text(column, row, text, ha="center", va="center", fontsize=15, color=colour)
        if low < high:
            bounds = f"{rank_cell(low, largest)} to {rank_cell(high, largest)}"
            axes.text(
                column, row + 0.34, bounds, ha="center", va="center", fontsize=8, color=colour
            )
    colours = COLOURS.with_extremes(bad=MISSING)
    axes.imshow(np.ma.masked_invalid(middle), norm=norm, cmap=colours, aspect="auto")
    axes.set_xticks(range(len(factors)), [f"{factor:g}" for factor in factors])
    axes.set_yticks(range(len(decays)), [f"{decay:g}" for decay in decays])
    axes.tick_params(length=0)
