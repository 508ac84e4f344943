"""Spectra of the products of attention heads, and of their change (boix2023).

Figures 1, 2, 5, 11, 13, 15; docstrings of public functions are captions.
"""

import math

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from rankscope.figures.over_time import INDEX
from rankscope.figures.seeds import Setting
from rankscope.figures.style import (
    Colour,
    draw_lines,
    draw_order_bar,
    evenly,
    legend_below,
    log_axis,
    open_frame,
    shades,
)
from rankscope.figures.time_axis import TrainingTime
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.axes import band_of_heads
from rankscope.lab.papers.boix2023.figures.vit_panels import (
    all_collapsed,
    block_numbers,
    counted,
    default_setting,
    draw_heads,
    heading,
    moments,
    settings_by_scale,
    title,
    unpadded,
)
from rankscope.lab.papers.boix2023.runs import (
    CHANGE,
    INITIAL,
    KINDS,
    Kind,
    moment,
    spectra,
    time_unit,
    times,
)

# Readers with colour blindness tell them apart by lightness, and the start by its dashes.
START, END = "#d55e00", "#00734f"
GREENS = colormaps["YlGn"]
LEADING = 20  # singular values drawn over training
SHOWN_SCALES = 3
SHOWN_BLOCKS = 3


def figure_1(runs: Runs) -> Figure:
    """Normalised spectra of one head's products at the start, and of their change in training.

    The head is the first of the middle block, at the default initial scale, of the first seed that
    did not collapse. The paper shows K-Q alone and does not name the head. Each spectrum is divided
    by its largest value. Dashed: the product at the start, which has at most as many values as a
    head is wide. Green: its change since then, darker later. The paper says that the change has low
    rank, and that its rank grows gradually.
    """
    setting = default_setting(runs)
    numbers = block_numbers(setting)
    middle = numbers[(len(numbers) - 1) // 2]
    return _spectra_of_first_heads(setting, [middle], columns=len(KINDS))


def spectra_in_training(runs: Runs) -> Figure:
    """Normalised spectra of products at the start and of their change in training, three blocks.

    K-Q is above and V-O below: the first head of each block, at the default initial scale, for the
    first seed that did not collapse. The paper does not name its heads and layers. Lines are as in
    figure 1. The paper says that the change has low rank, which grows gradually.
    """
    setting = default_setting(runs)
    numbers = block_numbers(setting)
    blocks = [numbers[i] for i in evenly(len(numbers), SHOWN_BLOCKS)]
    return _spectra_of_first_heads(setting, blocks, columns=len(blocks))


def _spectra_of_first_heads(setting: Setting, blocks: list[int], *, columns: int) -> Figure:
    """Draw spectra divided by their largest value, of the first head of each block.

    Indices are logarithmic, since the first few change most. A change of zero is not drawn.
    """
    ds = counted(setting)[0]
    chosen = moments(ds)
    figure, grid = _panels(len(KINDS) * len(blocks), columns, height=2.5)
    heads = ((kind, block) for kind in KINDS for block in blocks)
    for axes, (kind, block) in zip(grid.flat, heads, strict=True):
        start = spectra(ds.isel(step=[0]), kind, of=INITIAL).sel(block=block, head=1)
        change = spectra(ds.isel(step=chosen), kind, of=CHANGE).sel(block=block, head=1)
        changes = unpadded(change)
        for S, colour in zip(changes, greens(len(chosen)), strict=True):
            if S.any():
                _draw_spectrum(axes, S / S[0], colour)
        S = _with_zeros(unpadded(start), changes.shape[1])[0]
        _draw_spectrum(axes, S / S[0], START, style="--")
        axes.set_title(f"{title(kind, block)}, head 1", fontsize="medium", loc="left")
        axes.set_ylim(0, 1.02)
    _label_indices(grid, "singular value / largest")
    lines = [
        Line2D([], [], color=colour, label=f"its change, {moment(ds, position)}")
        for position, colour in zip(chosen, greens(len(chosen)), strict=True)
    ]
    legend_below(figure, [_start_line(), *lines])
    return heading(figure, setting, f"seed {ds.attrs['seed']}")


def figure_5(runs: Runs, *, kind: Kind) -> Figure:
    """Singular values of the products at the start and of their change at the end, by block.

    Lines are means over heads and bands one standard deviation, at the default initial scale, for
    the first seed that did not collapse. The spectra are not divided by their largest value, and
    all panels have the same axes. The paper shows K-Q of random heads in some layers and announces
    V-O. It says that the change has extremely low rank compared with the start.
    """
    setting = default_setting(runs)
    ds, blocks = counted(setting)[0], block_numbers(setting)
    start = spectra(ds.isel(step=[0]), kind, of=INITIAL)[0]
    change = spectra(ds.isel(step=[-1]), kind, of=CHANGE)[0]
    figure, grid = _panels(len(blocks), 3, height=2.4)
    for axes, block in zip(grid.flat, blocks, strict=False):
        S = unpadded(change.sel(block=block))
        index = np.arange(1, S.shape[1] + 1)
        S_start = _with_zeros(unpadded(start.sel(block=block)), len(index))
        draw_heads(axes, index, S_start, START, style="--")
        draw_heads(axes, index, S, END)
        axes.set_title(title(kind, block), fontsize="medium", loc="left")
    used = grid.flat[: len(blocks)]
    highest = max(axes.get_ylim()[1] for axes in used)
    for axes in used:
        axes.set_ylim(0, highest)
    _label_indices(grid, "singular value")
    change_line = Line2D([], [], color=END, label="its change at the end")
    legend_below(figure, [_start_line(), change_line, band_of_heads()])
    return heading(figure, setting, f"seed {ds.attrs['seed']}")


def figure_2(runs: Runs) -> Figure:
    """Largest singular values of the change of both products, for three initial scales.

    K-Q is above and V-O below. The head is the first of the second block, of the first seed that
    did not collapse; the paper takes a random head of the second layer. Scale 1 is the default.
    Every panel has its own axes; time is logarithmic, since the first epochs hold most of the
    growth. A run that stopped once its training loss had settled is shorter. The paper says that
    values grow one after another, more clearly at smaller scales.
    """
    settings = list(settings_by_scale(runs).values())[::-1]
    shown = [settings[i] for i in evenly(len(settings), SHOWN_SCALES)]
    block = block_numbers(settings[-1])[:2][-1]
    figure, grid = _panels(len(KINDS) * len(shown), len(shown), height=2.5)
    panels = [(kind, setting) for kind in KINDS for setting in shown]
    heads = [counted(setting)[0] for _, setting in panels]
    spectra_of_heads = [
        unpadded(spectra(ds, kind, of=CHANGE).sel(block=block, head=1))
        for ds, (kind, _) in zip(heads, panels, strict=True)
    ]
    count = min(LEADING, *(S.shape[1] for S in spectra_of_heads))
    for axes, (kind, setting), ds, S in zip(
        grid.flat, panels, heads, spectra_of_heads, strict=True
    ):
        draw_lines(axes, times(ds), S[:, :count], dict(enumerate(shades(count))))
        name = f"{setting.title} (collapsed)" if all_collapsed(setting) else setting.title
        axes.set_title(f"{name}\n{title(kind, block)}, head 1", fontsize="medium", loc="left")
        axes.set_ylim(bottom=0)
        TrainingTime(times(ds), time_unit(ds)).draw(axes)
        open_frame(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("singular value of the change")
    draw_order_bar(figure, list(grid.flat), count, INDEX)
    return figure


def greens(count: int) -> list[Colour]:
    """Return greens from pale, for early, to dark, for late."""
    return [GREENS(place) for place in np.linspace(0.35, 1, max(count, 2))][-count:]


def _panels(count: int, columns: int, *, height: float) -> tuple[Figure, np.ndarray]:
    """Return panels that share no axes, since runs differ in length."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    size = (0.8 + 2.9 * columns, 0.9 + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid: np.ndarray = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, grid


def _label_indices(grid: np.ndarray, values: str) -> None:
    for axes in grid.flat:
        log_axis(axes)
        open_frame(axes)
    for axes in grid[-1]:
        axes.set_xlabel(f"{INDEX}, log scale")
    for axes in grid[:, 0]:
        axes.set_ylabel(values)


def _with_zeros(S: Float[np.ndarray, "*head r"], length: int) -> Float[np.ndarray, "*head k"]:
    """Append the zeros of a product of inner width r, which has at most r other values."""
    missing = max(length - S.shape[-1], 0)
    return np.pad(S, [*[(0, 0)] * (S.ndim - 1), (0, missing)])


def _draw_spectrum(
    axes: Axes, S: Float[np.ndarray, " k"], colour: ColorType, *, style: str = "-"
) -> None:
    axes.plot(np.arange(1, len(S) + 1), S, color=colour, linestyle=style, linewidth=1.4)


def _start_line() -> Line2D:
    return Line2D([], [], color=START, linestyle="--", label="product at the start")
