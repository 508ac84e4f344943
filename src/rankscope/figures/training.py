"""Figures of one training run: spectra, ranks and alignment over time (yunis2024, figs. 1-3).

Those of several seeds and networks are in `networks` and `sweeps`; `over_time` has what they share.
"""

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.figures.over_time import (
    draw_heat_map,
    draw_shades,
    draw_spectrum,
    label_rows,
    label_time,
    number_rows,
    point_or_line,
    trimmed,
)
from rankscope.figures.style import COLOURS


def singular_values_over_time(ds: xr.Dataset, matrix: str) -> Figure:
    """Each singular value of `matrix` as a line over time, darker where larger (fig. 1)."""
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    draw_singular_values(figure.add_subplot(), ds, matrix)
    return figure


def effective_rank_by_depth(ds: xr.Dataset) -> Figure:
    """Heat map of normalised effective rank: whole matrices in model order over time (fig. 2)."""
    figure = Figure(figsize=(6.5, heat_map_height(len(whole_matrices(ds)))), layout="constrained")
    draw_effective_rank(figure.add_subplot(), ds)
    return figure


def overview(ds: xr.Dataset, matrix: str | None = None) -> Figure:
    """Singular values of one matrix (the middle one unless named) beside the ranks of all."""
    names = whole_matrices(ds)
    figure = Figure(figsize=(11, heat_map_height(len(names))), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(5, 6))
    draw_singular_values(left, ds, matrix or names[len(names) // 2])
    draw_effective_rank(right, ds)
    return figure


def alignment_over_time(ds: xr.Dataset, pair: str) -> Figure:
    """Heat map of A_ii of one pair, i against time (fig. 3 top); below it its mean beside chance.

    The paper draws no reference level. The lower panel sets the mean over the first min(10, R)
    directions (Eq. 3) against the background, the pair's mean off-diagonal overlap: chance as
    measured.
    """
    found = select(ds, "pair", pair)
    values = trimmed(found["alignment"].to_numpy())  # (step, i)
    figure = Figure(figsize=(6.5, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    mesh = draw_heat_map(upper, values.T)
    upper.set(title=pair, ylabel="direction $i$")
    number_rows(upper, values.shape[1])
    figure.colorbar(mesh, ax=upper, label="alignment $A_{ii}$")
    marker = point_or_line(values)
    lower.plot(
        found.rankscope.mean_alignment().to_numpy(),
        marker=marker,
        color=COLOURS(0.0),
        label="mean, $i$ ≤ 10",
    )
    background = found["alignment_background"].to_numpy()
    lower.plot(background, marker=marker, color="0.5", label="background (chance as measured)")
    lower.set(ylabel="alignment", ylim=(0, None))
    lower.legend(frameon=False, fontsize="small")
    label_time(lower, ds["step"].to_numpy())
    return figure


def mean_alignment_by_pair(ds: xr.Dataset) -> Figure:
    """Heat map of a(t), the mean of A_ii over i <= min(10, R), for all pairs (fig. 3 bottom).

    Lines across the colour bar mark the lowest and the highest background of a pair (median over
    snapshots): narrow heads meet by chance more than wide layers do.
    """
    if "alignment" not in ds:
        raise ValueError("this run has no variable 'alignment'; track it with pairs")
    names = [str(name) for name in ds["pair"].to_numpy()]
    values = ds.rankscope.mean_alignment().transpose("pair", "step").to_numpy()
    figure = Figure(figsize=(8, heat_map_height(len(names))), layout="constrained")
    axes = figure.add_subplot()
    mesh = draw_heat_map(axes, values, lowest=0.0)
    label_rows(axes, names)
    axes.set(title="alignment of neighbouring matrices", ylabel="pair")
    label_time(axes, ds["step"].to_numpy())
    bar = figure.colorbar(
        mesh, ax=axes, label="mean alignment, $i$ ≤ 10 (white: range of background)"
    )
    background = ds["alignment_background"].median("step")
    for level in (float(background.min()), float(background.max())):
        bar.ax.axhline(level, color="white", linewidth=2)
    return figure


def draw_singular_values(axes: Axes, ds: xr.Dataset, matrix: str) -> None:
    """Draw fig. 1."""
    values = select(ds, "matrix", matrix)["singular_values"].expand_dims("seed")
    draw_shades(axes, draw_spectrum(axes, values))
    axes.set(title=matrix, ylabel="singular value")
    label_time(axes, ds["step"].to_numpy())


def draw_effective_rank(axes: Axes, ds: xr.Dataset) -> None:
    """Draw fig. 2; colours span the values found, since changes are small beside 0 to 1."""
    names = whole_matrices(ds)
    ranks = ds.rankscope.normalized_effective_rank().sel(matrix=names).transpose("matrix", "step")
    mesh = draw_heat_map(axes, ranks.to_numpy())
    label_rows(axes, names)
    axes.set(title="normalised effective rank", ylabel="matrix, in model order")
    label_time(axes, ds["step"].to_numpy())
    axes.figure.colorbar(mesh, ax=axes, label="effective rank / min(m, n)")


def heat_map_height(rows: int) -> float:
    return min(max(3.5, 1.5 + 0.16 * rows), 8.0)


def whole_matrices(ds: xr.Dataset) -> list[str]:
    """Names of the matrices that are not part of another, in model order."""
    return [str(name) for name in ds["matrix"].to_numpy()[ds["part_of"].to_numpy() == ""]]


def select(ds: xr.Dataset, dim: str, name: str) -> xr.Dataset:
    known = [str(other) for other in ds[dim].to_numpy()] if dim in ds.coords else []
    if name not in known:
        raise ValueError(f"this run has no {dim} {name!r}; it has {', '.join(known) or 'none'}")
    return ds.sel({dim: name})
