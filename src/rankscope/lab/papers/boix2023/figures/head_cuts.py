"""Accuracy that a vision transformer keeps with the changes of its heads cut to low rank."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from rankscope.figures.style import BAND, DARK, Colour, legend_below, open_frame, panels, shades
from rankscope.lab.experiment import TooFewRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.training.head_cuts import CUTS, Cut, CutAccuracies

TITLES: dict[Cut, str] = {"kq": "K-Q cut", "vo": "V-O cut", "both": "both cut"}
LEVEL = 0.99  # drawn as a line
Curves = dict[float, list[CutAccuracies]]


def kept_accuracy(runs: Runs) -> Figure:
    """Held-out accuracy kept when the change of every head is cut to rank r (not in the paper).

    Each head's slices of W_Q and W_K, of W_V and W_O, or of all four become W0 plus the best part
    of rank r of W - W0; the rest is as trained. 100% is the accuracy gained in training, 0% that of
    the start. Rank 0 puts back the initial heads. Lines are means over seeds, bands their range,
    and the dotted line is 99%. Runs that gained nothing are left out.
    """
    by_decay: dict[object, Curves] = {}
    for key in runs:
        for ds in runs[key].values():
            accuracies = CutAccuracies.of_run(ds)
            if accuracies is not None and accuracies.gained > 0:
                curves = by_decay.setdefault(key.variant.get("decay"), {})
                curves.setdefault(float(key.variant["scale"]), []).append(accuracies)
    if not by_decay:
        raise TooFewRuns("this figure needs a run that measured cuts of its heads")
    figure = Figure(figsize=(9.5, 1.2 + 2.4 * len(by_decay)), layout="constrained")
    grid = panels(figure, len(CUTS) * len(by_decay), columns=len(CUTS))
    factors = sorted({factor for curves in by_decay.values() for factor in curves})
    colours = dict(zip(factors, shades(len(factors)), strict=True))
    for row, (decay, curves) in enumerate(by_decay.items()):
        for axes, cut in zip(grid[row * len(CUTS) :], CUTS, strict=False):
            _draw(axes, cut, {factor: curves[factor] for factor in sorted(curves)}, colours)
            axes.set_title(
                TITLES[cut] + ("" if decay is None else f", decay {decay:g}"),
                fontsize="medium",
                loc="left",
            )
    _finish(grid, next(iter(next(iter(by_decay.values())).values()))[0].ranks)
    legend_below(
        figure, [Line2D([], [], color=c, label=f"initial scale {f:g}") for f, c in colours.items()]
    )
    return figure


def _draw(axes: Axes, cut: Cut, curves: Curves, colours: dict[float, Colour]) -> None:
    """Draw the mean over seeds and the range of each initial scale; ranks at equal distances."""
    for factor, seeds in curves.items():
        shares = np.stack([accuracies.kept(cut) for accuracies in seeds])  # (seed, rank)
        place = np.arange(shares.shape[1])
        axes.plot(place, shares.mean(0), color=colours[factor], linewidth=1.4)
        axes.fill_between(
            place, shares.min(0), shares.max(0), color=colours[factor], alpha=BAND, linewidth=0
        )
    axes.axhline(LEVEL, color=DARK, linewidth=0.8, linestyle=":")


def _finish(grid: Sequence[Axes], ranks: np.ndarray) -> None:
    low, high = zip(*(axes.get_ylim() for axes in grid), strict=True)
    for axes in grid:
        open_frame(axes)
        axes.set_xticks(range(len(ranks)), [str(rank) for rank in ranks])
        axes.set_ylim(min(0, *low), max(1.05, *high))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel("rank r of the change")
        if axes.yaxis.get_tick_params()["labelleft"]:
            axes.set_ylabel("accuracy gained, kept")
