"""Figures of one tracked run: spectra, ranks and alignment over time.

They need nothing but what a `Tracker` writes: pass the Dataset that `rankscope.open` returns. The
figure numbers are those of yunis2024.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.over_time import (
    draw_heat_map,
    draw_shades,
    draw_spectrum,
    label_rows,
    number_rows,
    point_or_line,
    trimmed,
)
from rankscope.figures.style import COLOURS
from rankscope.figures.time_axis import TrainingTime
from rankscope.plain_names import plain_title


def singular_values_over_time(ds: xr.Dataset, matrix: str) -> Figure:
    """Draw each singular value of `matrix` as a line over time, darker where larger (fig. 1)."""
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    draw_singular_values(figure.add_subplot(), ds, matrix)
    return figure


def effective_rank_by_depth(ds: xr.Dataset) -> Figure:
    """Draw a heat map of normalised effective rank: whole matrices in model order (fig. 2)."""
    figure = Figure(figsize=(6.5, heat_map_height(len(whole_matrices(ds)))), layout="constrained")
    draw_effective_rank(figure.add_subplot(), ds)
    return figure


def overview(ds: xr.Dataset, matrix: str | None = None) -> Figure:
    """Draw the singular values of one matrix beside the ranks of all.

    matrix: its name; the default is the middle one of the model.
    """
    names = whole_matrices(ds)
    figure = Figure(figsize=(11, heat_map_height(len(names))), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(5, 6))
    draw_singular_values(left, ds, matrix or names[len(names) // 2])
    draw_effective_rank(right, ds)
    return figure


def alignment_over_time(ds: xr.Dataset, pair: str) -> Figure:
    """Draw a heat map of A_ii of one pair (fig. 3 top), and below it the mean beside chance.

    The lower panel shows the mean over the first min(10, R) directions (Eq. 3) and the background,
    the pair's mean off-diagonal overlap: chance as measured. The paper draws no such level.
    """
    selected = with_all_directions(select(ds, "pair", pair))
    values, time = trimmed(selected["alignment"].to_numpy()), times_of(selected)  # (step, i)
    figure = Figure(figsize=(6.5, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    mesh = draw_heat_map(upper, values.T, time)
    upper.set(title=pair, ylabel="direction $i$")
    number_rows(upper, values.shape[1])
    figure.colorbar(mesh, ax=upper, label="alignment $A_{ii}$")
    marker = point_or_line(values)
    lower.plot(
        time.values,
        selected.rankscope.mean_alignment().to_numpy(),
        marker=marker,
        color=COLOURS(0.0),
        label="mean, $i$ ≤ 10",
    )
    background = selected["alignment_background"].to_numpy()
    lower.plot(
        time.values, background, marker=marker, color="0.5", label="background (chance as measured)"
    )
    lower.set(ylabel="alignment", ylim=(0, None))
    lower.legend(frameon=False, fontsize="small")
    upper.set_xlabel("")
    time.draw(lower)
    return figure


def mean_alignment_by_pair(ds: xr.Dataset) -> Figure:
    """Draw a heat map of mean alignment over i <= min(10, R) for all pairs (fig. 3 bottom).

    Lines across the colour bar mark the lowest and the highest background of a pair (median over
    snapshots). Narrow heads overlap more by chance than wide layers do.
    """
    values = ds.rankscope.mean_alignment().transpose("pair", "step").to_numpy()
    names = [str(name) for name in ds["pair"].to_numpy()]
    figure = Figure(figsize=(8, heat_map_height(len(names))), layout="constrained")
    axes = figure.add_subplot()
    mesh = draw_heat_map(axes, values, times_of(ds), lowest=0.0)
    label_rows(axes, names)
    axes.set(title="alignment of neighbouring matrices", ylabel="pair")
    bar = figure.colorbar(mesh, ax=axes, label="mean alignment, $i$ ≤ 10 (white: chance)")
    background = ds["alignment_background"].median("step")
    for level in (float(background.min()), float(background.max())):
        bar.ax.axhline(level, color="white", linewidth=2)
    return figure


def draw_singular_values(axes: Axes, ds: xr.Dataset, matrix: str) -> None:
    """Draw the lines of `singular_values_over_time`."""
    ds = with_spectra(ds)
    values = select(ds, "matrix", matrix).rankscope.largest().expand_dims("seed")
    draw_shades(axes, draw_spectrum(axes, values, times_of(ds)))
    axes.set(title=plain_title(matrix), ylabel="singular value")


def draw_effective_rank(axes: Axes, ds: xr.Dataset) -> None:
    """Draw the heat map of `effective_rank_by_depth`.

    Colours span the measured values, because changes are small beside the range 0 to 1. A run that
    keeps leading values shows the stable rank.
    """
    ds, names = with_spectra(ds), whole_matrices(ds)
    accessor = ds.rankscope.whole().rankscope
    if accessor.has_all_values:
        ranks, title = accessor.normalized_effective_rank(), "normalised effective rank"
        label = "effective rank / min(m, n)"
    else:
        ranks, title, label = accessor.stable_rank(), "stable rank", "stable rank"
    mesh = draw_heat_map(axes, ranks.transpose("matrix", "step").to_numpy(), times_of(ds))
    label_rows(axes, names)
    axes.set(title=title, ylabel="matrix, in model order")
    axes.figure.colorbar(mesh, ax=axes, label=label)


def times_of(ds: xr.Dataset) -> TrainingTime:
    """Return the training steps of the snapshots."""
    return TrainingTime(ds["step"].to_numpy())


def with_spectra(ds: xr.Dataset) -> xr.Dataset:
    """Return an archived run at the snapshots that have spectra, and any other run as it is."""
    if "compaction" not in ds.attrs:
        return ds
    stored = ds["singular_values"].notnull().any(["matrix", "k"]).to_numpy()
    return ds.isel(step=np.flatnonzero(stored))


def with_all_directions(pair: xr.Dataset) -> xr.Dataset:
    """Return a pair without the snapshots at which only its leading directions are stored."""
    stored = pair["alignment"].notnull().sum("i").to_numpy()
    few = (stored > 0) & (stored < stored.max(initial=0))
    return pair.isel(step=np.flatnonzero(~few))


def heat_map_height(rows: int) -> float:
    """Height in inches of a figure with that many rows."""
    return min(max(3.5, 1.5 + 0.16 * rows), 8.0)


def whole_matrices(ds: xr.Dataset) -> list[str]:
    """Names of the matrices that are not part of another, in model order."""
    names = [str(name) for name in ds.rankscope.whole()["matrix"].to_numpy()]
    if not names:
        raise ValueError("this run has no matrices; look at its attribute 'coverage'")
    return names


def select(ds: xr.Dataset, dim: str, name: str) -> xr.Dataset:
    """Return `ds.sel({dim: name})`; ValueError with the known names if there is no such one."""
    known = [str(other) for other in ds[dim].to_numpy()] if dim in ds.coords else []
    if name not in known:
        raise ValueError(f"this run has no {dim} {name!r}; it has {', '.join(known) or 'none'}")
    return ds.sel({dim: name})
