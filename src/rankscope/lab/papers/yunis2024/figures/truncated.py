"""Training loss of networks, and of the top and bottom halves of their SVDs (yunis2024, fig. 6)."""

from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.over_time import Line, share_heights
from rankscope.figures.seeds import average, steps_of
from rankscope.figures.style import DARK, LOG_FROM, legend_below, open_frame
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings, time_of
from rankscope.lab.papers.yunis2024.figures.sweeps import Decay, decays_of, name_decays
from rankscope.lab.papers.yunis2024.runs import with_full_loss

CONSTANT = "0.45"
WIDTH, HEIGHT = 9.0, 2.7  # inches, of the figure and of a row
# Variables and lines of the left and of the right panel.
PANELS: tuple[tuple[tuple[str, Line], ...], ...] = (
    (("full_loss", "-"), ("top_loss", "--")),
    (("bottom_loss", "-."),),
)
TITLES = ("full model, top half of each SVD", "bottom half of each SVD")


def figure_6(runs: Runs) -> Figure:
    """Training loss of each network, and of the same network with half of each SVD removed.

    Rows are networks; colours are decays, dark for none. We replace every matrix but the last
    linear layer by the top or by the bottom half of its SVD, and measure BatchNorm statistics anew.
    Left: the full network (line) and its top half (dashed). Right: its bottom half. Both panels
    share their axis. With several seeds, lines are means. Dotted: the loss of the best guess that
    ignores the input. The paper says that the top half comes close to the full network, closer with
    more decay, and that the bottom half does not. It also says that training still works at high
    decay.
    """
    networks = sweep_settings(runs)
    figure = Figure(figsize=(WIDTH, 0.7 + HEIGHT * len(networks)), layout="constrained")
    grid = figure.subplots(len(networks), 2, squeeze=False)
    for row, (name, settings) in zip(grid, networks.items(), strict=True):
        decays = decays_of(settings)
        losses = [
            loss
            for axes, variables in zip(row, PANELS, strict=True)
            for decay in reversed(decays)
            for loss in draw_losses(axes, decay, variables)
        ]
        for axes, title in zip(row, TITLES, strict=True):
            axes.axhline(
                settings[0].runs[0].attrs["constant_loss"], color=CONSTANT, lw=1.2, linestyle=":"
            )
            axes.set_title(f"{name}: {title}", fontsize="medium", loc="left")
            axes.set_ylabel("training loss")
            open_frame(axes)
            if min(losses) > 0 and max(losses) > LOG_FROM * min(losses):
                axes.set_yscale("log")
        share_heights(list(row))
        name_decays(row[1], decays)
    legend_below(figure, loss_legend())
    return figure


def draw_losses(axes: Axes, decay: Decay, variables: tuple[tuple[str, Line], ...]) -> list[float]:
    """Draw mean losses over seeds, where the runs have them; return the lowest and the highest."""
    runs = tuple(map(with_full_loss, decay.setting.runs))
    setting = decay.setting._replace(runs=runs)
    ends: list[float] = []
    for variable, style in variables:
        if all(variable in ds for ds in runs):
            read = itemgetter(variable)
            steps = steps_of([setting], read)
            values = average(setting, read, steps)
            time = time_of([setting], steps)
            axes.plot(time.values, values, color=decay.colour, linestyle=style, linewidth=1.4)
            time.draw(axes)
            ends += [float(values.min()), float(values.max())]
    return ends


def loss_legend() -> list[Line2D]:
    looks: tuple[tuple[str, Line], ...] = (
        ("full model", "-"),
        ("top half of each SVD", "--"),
        ("bottom half of each SVD", "-."),
    )
    lines = [Line2D([], [], color=DARK, linestyle=style, label=name) for name, style in looks]
    return [*lines, Line2D([], [], color=CONSTANT, lw=1.2, linestyle=":", label="constant guess")]
