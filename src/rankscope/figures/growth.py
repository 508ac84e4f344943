"""Growth of the rank of changes over a fine-tuning."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rankscope.figures.style import draw_order_bar, legend_below, shades

MOST_NAMES = 12  # matrices that a legend names; more get an order bar
PANELS = {
    "stable_rank": "stable rank of the change",
    "r90": "directions with 90% of its energy",
    "norm": "norm of the change",
}


def change_ranks_over_steps(table: pd.DataFrame, *, title: str = "") -> Figure:
    """Draw stable rank, directions at 90% of the energy and norm of each change over the steps.

    boix2023, Figs. 4 and 5, show the stable rank for the heads of a network.

    table: one row per step and matrix, as `rankscope.lora.growth` returns it.
    """
    if missing := {"step", "matrix", *PANELS} - set(table):
        raise ValueError(f"the table has no columns {', '.join(sorted(missing))}")
    names = list(dict.fromkeys(table["matrix"]))
    colours = dict(zip(names, shades(len(names)), strict=True))
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for axes, (column, label) in zip(panels, PANELS.items(), strict=True):
        for name in names:
            rows = table[table["matrix"] == name].sort_values("step")
            values = pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype=float)
            steps = rows["step"].to_numpy(dtype=float)
            marker = "o" if np.isfinite(values).sum() < 2 else None
            axes.plot(steps, values, color=colours[name], linewidth=1.3, marker=marker)
        axes.set(xlabel="step", title=label)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=column == "r90"))
    if len(names) > MOST_NAMES:
        draw_order_bar(figure, list(panels), len(names), "matrix, in the model's order")
    else:
        legend_below(figure, [Line2D([], [], color=colours[n], label=n) for n in names])
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure
