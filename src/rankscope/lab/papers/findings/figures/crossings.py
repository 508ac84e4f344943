"""The picture of N3: where networks grok, and the rank and norm they have there."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.style import categories, legend_below, log_axis, open_frame
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.findings.claims.crossings import Crossing, crossing_of, variation
from rankscope.lab.papers.findings.runs import seed_runs

MARKERS = ("o", "^", "s", "D", "v")
WIDTH, HEIGHT = 9.0, 3.9  # inches
MEAN = "0.7"
ROOM = 1.6  # of the mean: the top of both axes, which begin at 0


def grokking_rank(runs: Runs) -> Figure:
    """Rank and weight norm at the moment of grokking against the step of that moment.

    A point is a run: the step at which half of the held-out sums are right, and left the mean
    normalised effective rank of its matrices there, right the total norm of its weight matrices.
    Colours are weight decays and markers shares of the table. Both axes begin at 0 and end at 1.6
    times the mean, so heights compare. Runs that never cross have no point.
    """
    moments = [crossing_of(run) for run in seed_runs(runs)]
    crossed = [moment for moment in moments if not moment.reason]
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    decays, shares = (_values(moments, name) for name in ("decay", "share"))
    colours = dict(zip(decays, categories(len(decays)), strict=True))
    markers = {share: MARKERS[place % len(MARKERS)] for place, share in enumerate(shares)}
    for axes, name, label in (
        (left, "rank", "effective rank / min(m, n),\nmean of matrices"),
        (right, "norm", "total norm of the weights"),
    ):
        for moment in crossed:
            variant = moment.run.key.variant
            colour = colours[float(variant["decay"])]
            marker = markers[float(variant["share"])]
            axes.plot(10**moment.step, getattr(moment, name), marker, color=colour)
        _finish(axes, [getattr(moment, name) for moment in crossed], label)
    figure.suptitle(
        f"{_task(moments)}: {len(crossed)} of {len(moments)} runs reach 50% test accuracy",
        fontsize="medium",
    )
    legend_below(
        figure,
        [
            *(_entry(colours[decay], "o", f"weight decay {decay:g}") for decay in decays),
            *(_entry("0.3", markers[share], f"{share:.0%} of the table") for share in shares),
            Line2D([], [], color=MEAN, linewidth=1, label="mean of these runs"),
        ],
    )
    return figure


def _task(moments: Sequence[Crossing]) -> str:
    """The task in words, which tells the scale: "(a + b) mod 113"."""
    declared = moments[0].run.ds.attrs.get("declaration") or {}
    p = declared.get("task", {}).get("model", {}).get("p")
    return "Modular addition" if p is None else f"(a + b) mod {p}"


def _values(moments: Sequence[Crossing], name: str) -> list[float]:
    return sorted({float(moment.run.key.variant[name]) for moment in moments})


def _finish(axes: Axes, values: Sequence[float], label: str) -> None:
    axes.set_ylabel(label)
    axes.set_xlabel("step of 50% test accuracy (log scale)")
    open_frame(axes)
    if not values:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no run crosses", ha="center", transform=axes.transAxes)
        return
    mean = sum(values) / len(values)
    axes.set_ylim(0, max(ROOM * mean, 1.05 * max(values)))
    axes.axhline(mean, color=MEAN, linewidth=1, zorder=0.5)
    axes.set_title(f"varies by {variation(values):.1%}", fontsize="medium", loc="left")
    log_axis(axes)


def _entry(colour: object, marker: str, label: str) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)  # type: ignore[arg-type]
