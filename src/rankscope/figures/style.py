"""Style of all figures: colours, ticks, panels, files."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Num
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.typing import ColorType

Colour = tuple[float, float, float, float]

# Even in lightness, and readable with colour blindness. Its palest end would vanish on white.
COLOURS = ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, 256)), name="rankscope")
# For ratios: blue below 1, white at 1, red above; readable with colour blindness.
RATIOS = colormaps["RdBu_r"]
# Okabe and Ito's colours without yellow, which is too pale for lines.
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MISSING = "0.85"  # grey for values that could not be measured
IDLE = "0.75"  # grey for lines that stay negligible
DARK = "0.2"  # for a single line
BAND = 0.3  # opacity of bands
MOST_TICKS = 7
FIGURE_DPI = 160
LEGEND_WIDTH = 2.6  # inches per entry
LOG_FROM = 20  # ratio of largest to smallest loss from which an axis is logarithmic


def save(figure: Figure, path: Path | str) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg and return both; a suffix .png or .svg is not repeated."""
    path = Path(path).with_suffix("") if Path(path).suffix in (".png", ".svg") else Path(path)
    png, svg = (Path(f"{path}.{suffix}") for suffix in ("png", "svg"))
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=FIGURE_DPI)
    engine = figure.get_layout_engine()
    figure.set_layout_engine(None)  # laying out again would double the time
    figure.savefig(svg)
    figure.set_layout_engine(engine)
    return png, svg


def legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Draw one legend for all panels under them, in as few rows as the width allows."""
    room = max(int(figure.get_figwidth() / LEGEND_WIDTH), 1)
    rows = -(-len(handles) // room)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def log_axis(axes: Axes) -> None:
    """Make the x axis of a finished panel logarithmic, with ticks at powers of ten.

    Where there are few, 2 and 5 times these powers have ticks too.
    """
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    few = high < 200 * low
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def evenly(count: int, most: int = MOST_TICKS) -> list[int]:
    """Return at most `most` positions of range(count), evenly spread, with first and last."""
    spread = np.linspace(0, count - 1, min(count, most)).round()
    return [int(position) for position in np.unique(spread)]


def shades(count: int) -> list[Colour]:
    """Return `count` colours from dark to light, for things that have an order."""
    return [COLOURS(position) for position in np.linspace(0, 1, max(count, 2))][:count]


def categories(count: int) -> list[ColorType]:
    """Return `count` colours for things without an order, readable with colour blindness."""
    return [CATEGORIES[i % len(CATEGORIES)] for i in range(count)]


def open_frame(axes: Axes) -> None:
    """Leave out the upper and the right edge of a panel of lines."""
    axes.spines[["top", "right"]].set_visible(False)


def mixed(colour: Colour, other: float, share: float) -> Colour:
    """Return `colour` mixed with a `share` of the grey `other`: 0 is black, 1 is white."""
    red, green, blue = (share * other + (1 - share) * channel for channel in colour[:3])
    return red, green, blue, 1.0


def draw_lines(
    axes: Axes,
    time: Num[np.ndarray, " time"],
    values: Num[np.ndarray, "time p"],
    colours: Mapping[int, Colour],
    *,
    opacity: float = 1.0,
) -> None:
    """Draw each column of `values` as a line; those without a colour thin and grey, below."""
    for i in (i for i in range(values.shape[1]) if i not in colours):
        axes.plot(time, values[:, i], color=IDLE, linewidth=0.5, alpha=opacity, zorder=1.5)
    for i in reversed(list(colours)):  # the first last, on top
        axes.plot(time, values[:, i], color=colours[i], linewidth=1.2, alpha=opacity)


def numbered(count: int) -> range:
    """Return ticks at 1, 2, ... `count`, at most 10 of them, at equal distances."""
    return range(1, count + 1, max(math.ceil(count / 10), 1))


def draw_order_bar(figure: Figure, axes: Sequence[Axes], count: int, label: str) -> None:
    """Draw a colour bar with one field for each of `count` shades, 1 on top."""
    if count == 0:
        return
    fields = BoundaryNorm(np.arange(count + 1) + 0.5, count)
    mappable = ScalarMappable(fields, ListedColormap(shades(count)))
    bar = figure.colorbar(mappable, ax=list(axes), label=label, aspect=40)
    bar.set_ticks(numbered(count))
    bar.ax.tick_params(which="minor", length=0)
    bar.ax.invert_yaxis()


def panels(figure: Figure | SubFigure, count: int, *, columns: int) -> list[Axes]:
    """Return `count` panels in rows that share axes, with tick labels on the outside only."""
    columns = min(columns, count)
    grid = figure.subplots(
        math.ceil(count / columns), columns, sharex=True, sharey=True, squeeze=False
    ).ravel()
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[max(count - columns, 0) : count]:  # also above an empty cell
        axes.tick_params(labelbottom=True)
    return list(grid[:count])
