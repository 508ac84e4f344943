"""Weight decays over training, a row for each network, a colour for each decay (figs. 4 and 5)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rankscope.figures.over_time import Line, trimmed
from rankscope.figures.seeds import Read, Setting, average, steps_of
from rankscope.figures.style import BAND, Colour, log_axis, open_frame, shades
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.alignment import CHANCE, shown_words
from rankscope.lab.papers.yunis2024.figures.quantities import (
    NER,
    RELATIVE_ALIGNMENT,
    ranks,
    relative_alignment,
    shown_pair,
    shown_spectrum,
)
from rankscope.lab.papers.yunis2024.figures.settings import sweep_settings, time_of
from rankscope.plain_names import plain_names

WIDTH, HEIGHT = 9.6, 2.7  # inches, of the figure and of a row
COLLAPSED: Line = ":"
Draw = Callable[[Axes, Sequence["Decay"]], None]  # draws the last decay first, below the others


class Decay(NamedTuple):
    """Runs of one decay, and how their lines look; dotted if all of them collapsed."""

    setting: Setting
    colour: Colour

    @property
    def style(self) -> Line:
        return COLLAPSED if self.setting.collapsed and all(self.setting.collapsed) else "-"

    @property
    def label(self) -> str:
        """The decay, "base" for that of figures 1-3, and how many seeds collapsed."""
        title = self.setting.title.removeprefix("weight decay ")
        lost, total = sum(map(bool, self.setting.collapsed)), len(self.setting.runs)
        if not lost:
            return title
        return f"{title}, collapsed" if lost == total else f"{title}, {lost} of {total} collapsed"


def figure_4(runs: Runs) -> Figure:
    """Singular values and effective ranks over training, for every weight decay.

    Rows are networks; colours are decays, dark for none. "Base" marks the decay of figures 1-3.
    Left: largest (line) and median (dashed) singular value of the matrix of figure 1. Middle:
    normalised effective rank, the median over matrices, in a band from the lower to the upper
    quartile. Right: the matrix's singular values at the end, as shares of the largest. Runs that
    collapsed are dotted; their flat spectra read as high rank. With several seeds we show their
    mean. The paper draws a panel for each decay, and says that more decay gives lower rank.
    """
    titles = ("largest and median value", "effective rank of all matrices", "spectrum at the end")
    return _by_network(runs, (_draw_values, _draw_ranks, _draw_spectrum), titles, _matrix_words)


def figure_5(runs: Runs) -> Figure:
    """Alignment of neighbouring matrices over training, for every weight decay.

    Rows are networks; colours are decays, dark for none. "Base" marks the decay of figures 1-3.
    Everything is divided by the pair's background, so 1 is chance (dotted). Left: mean overlap a of
    the first ten directions of the pair of figure 3. Middle: a of all pairs, the median, in a band
    from the lower to the upper quartile. Right: overlap A_ii at the end against direction, the
    median over pairs, averaged over directions 3-4, 5-8, 9-16 and so on. Lines end once a matrix
    has decayed to zero, since its directions are then rounding errors. With several seeds we show
    their mean. The paper draws a panel for each decay, and says that more decay gives stronger
    alignment, strongest in the Transformer.
    """
    titles = ("one pair", "all pairs", "by direction, at the end")
    draws = (_draw_shown_pair, _draw_pairs, _draw_directions)
    return _by_network(runs, draws, titles, shown_words)


def _by_network(
    runs: Runs, draws: Sequence[Draw], titles: Sequence[str], words: Callable[[Setting], str]
) -> Figure:
    networks = sweep_settings(runs)
    figure = Figure(figsize=(WIDTH, 0.3 + HEIGHT * len(networks)), layout="constrained")
    grid = figure.subplots(len(networks), len(draws), squeeze=False)
    for row, (name, settings) in zip(grid, networks.items(), strict=True):
        decays = decays_of(settings)
        for axes, draw, title in zip(row, draws, titles, strict=True):
            draw(axes, decays[::-1])
            axes.set_title(title, fontsize="medium", loc="left")
            open_frame(axes)
        first = f"{name}, {words(settings[0])}"
        row[0].set_title(f"{first}:\n{titles[0]}", fontsize="medium", loc="left")
        name_decays(row[-1], decays)
    return figure


def decays_of(settings: Sequence[Setting]) -> list[Decay]:
    """Return the decays of a network with their colours, none the darkest."""
    return [Decay(*look) for look in zip(settings, shades(len(settings)), strict=True)]


def name_decays(axes: Axes, decays: Sequence[Decay]) -> None:
    """Write the legend of decays right of a panel."""
    entries = [
        Line2D([], [], color=decay.colour, linestyle=decay.style, linewidth=2, label=decay.label)
        for decay in decays
    ]
    axes.legend(
        handles=entries,
        title="weight decay",
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize="small",
        title_fontsize="small",
    )


def _matrix_words(setting: Setting) -> str:
    (words,) = plain_names([str(setting.runs[0].attrs["shown_matrix"])])
    return words.label


def _over_time(axes: Axes, decay: Decay, read: Read) -> tuple[np.ndarray, np.ndarray]:
    """Draw the axis of time; return its values and the mean over seeds of what `read` returns."""
    steps = steps_of([decay.setting], read)
    time = time_of([decay.setting], steps)
    if len(steps) > 1:
        time.draw(axes)
    return time.values, average(decay.setting, read, steps).to_numpy()


def _draw_quartiles(axes: Axes, decays: Sequence[Decay], read: Read) -> None:
    for decay in decays:
        x, values = _over_time(axes, decay, read)
        low, middle, high = _quartiles(values)
        axes.fill_between(x, low, high, color=decay.colour, alpha=BAND / 2, linewidth=0)
        axes.plot(x, middle, color=decay.colour, linestyle=decay.style, linewidth=1.8)


def _quartiles(values: np.ndarray) -> np.ndarray:
    """Return quartiles over the last axis; NaN where nothing is known."""
    known = np.isfinite(values).any(axis=1)
    quartiles = np.full((3, len(values)), np.nan)
    quartiles[:, known] = np.nanquantile(values[known], (0.25, 0.5, 0.75), axis=1)
    return quartiles


def _draw_values(axes: Axes, decays: Sequence[Decay]) -> None:
    for decay in decays:
        x, values = _over_time(axes, decay, shown_spectrum)
        spectra, style = trimmed(values), decay.style
        axes.plot(x, spectra[:, 0], color=decay.colour, linestyle=style, linewidth=1.8)
        thin = "--" if style == "-" else style
        axes.plot(x, np.median(spectra, axis=1), color=decay.colour, linestyle=thin, linewidth=1)
    axes.set(ylabel="singular value", ylim=(0, None))


def _draw_ranks(axes: Axes, decays: Sequence[Decay]) -> None:
    _draw_quartiles(axes, decays, ranks)
    axes.set(ylabel=NER, ylim=(0, 1))


def _draw_spectrum(axes: Axes, decays: Sequence[Decay]) -> None:
    for decay in decays:
        last = average(decay.setting, lambda ds: shown_spectrum(ds).dropna("step", how="all")[-1:])
        values = trimmed(last.to_numpy())[-1]
        if values[0] > 0:
            index = np.arange(1, len(values) + 1)
            shares = values / values[0]
            axes.plot(index, shares, color=decay.colour, linestyle=decay.style, linewidth=1.6)
    axes.set(xlabel="index (log scale)", ylabel="value / largest", ylim=(0, None))
    log_axis(axes)


def _draw_shown_pair(axes: Axes, decays: Sequence[Decay]) -> None:
    def read(ds: xr.Dataset) -> xr.DataArray:
        return relative_alignment(shown_pair(ds).expand_dims("pair"))

    for decay in decays:
        x, values = _over_time(axes, decay, read)
        axes.plot(x, values[:, 0], color=decay.colour, linestyle=decay.style, linewidth=1.6)
    _finish_ratios(axes, RELATIVE_ALIGNMENT)


def _draw_pairs(axes: Axes, decays: Sequence[Decay]) -> None:
    _draw_quartiles(axes, decays, relative_alignment)
    _finish_ratios(axes, RELATIVE_ALIGNMENT)


def _draw_directions(axes: Axes, decays: Sequence[Decay]) -> None:
    for decay in decays:
        ends = np.stack([_directions_at_end(ds) for ds in decay.setting.runs])
        if np.isfinite(ends).any():
            centres, means = binned(ends.mean(axis=0))
            (line,) = axes.plot(centres, means, color=decay.colour, linewidth=1.6)
            line.set(linestyle=decay.style, marker="o", markersize=3)
    _finish_ratios(axes, "$A_{ii}$ / background")
    axes.set_xlabel("direction $i$ (log scale)")
    log_axis(axes)


def _directions_at_end(ds: xr.Dataset) -> np.ndarray:
    """(i): median over pairs of A_ii over background at the last snapshot."""
    last = ds.isel(step=-1)
    ratios = (last["alignment"] / last["alignment_background"]).transpose("i", "pair")
    medians: np.ndarray = _quartiles(ratios.to_numpy())[1]
    return medians


def binned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means over directions 1, 2, 3-4, 5-8, ... and the geometric centres of these."""
    edges = [0, *(2**power for power in range(20) if 2**power < len(values)), len(values)]
    bins = [values[low:high] for low, high in pairwise(edges)]
    centres = [np.sqrt((low + 1) * high) for low, high in pairwise(edges)]
    means = [
        float(part[np.isfinite(part)].mean()) if np.isfinite(part).any() else np.nan
        for part in bins
    ]
    return np.array(centres), np.array(means)


def _finish_ratios(axes: Axes, label: str) -> None:
    axes.axhline(1.0, color=CHANCE, linewidth=1, linestyle=":")
    axes.set(ylabel=label, ylim=(0, None))
