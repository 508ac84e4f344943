"""Figures of what a run followed beside its weights: one function for each measure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures.over_time import draw_heat_map, label_rows, point_or_line
from rankscope.figures.style import legend_below, shades
from rankscope.figures.time_axis import TrainingTime
from rankscope.figures.training import times_of

MOST_LINES = 16


class Panel(NamedTuple):
    """One heat map: values over (rows, step), and the ends of its scale, if they are fixed."""

    title: str
    values: xr.DataArray
    label: str
    lowest: float | None = None
    highest: float | None = None


def updates_over_time(ds: xr.Dataset) -> Figure:
    """Draw the size, the rank and the direction of the updates of each whole matrix."""
    ds = _whole(ds, "updates")
    full = "update_singular_values" in ds
    accessor = ds.rankscope
    rank = (
        accessor.normalized_effective_rank(of="update_singular_values")
        if full
        else accessor.stable_rank(of="update_singular_values")
    )
    label = "effective rank / min(m, n)" if full else "stable rank"
    size = log10(ds["update_norm_ratio"])
    panels = [
        Panel("size of the update", size, "log10 of |update| / |weight|"),
        Panel("rank of the update", rank, label),
        Panel("inside the leading directions", ds["update_share"], "share of the energy"),
        Panel("along the way since the start", ds["update_cosine_start"], "cosine", -1.0, 1.0),
    ]
    return _maps(panels, "matrix")


def gradients_over_time(ds: xr.Dataset) -> Figure:
    """Draw the stable rank of gradients and of the optimizer's moments, as far as followed."""
    titles = {
        "gradient_stable_rank": "gradient",
        "first_moment_stable_rank": "first moment",
        "second_moment_stable_rank": "second moment",
        "muon_distance": "distance of Muon's step",
    }
    names = [name for name in titles if name in ds and bool(ds[name].notnull().any())]
    if not names:
        raise ValueError(
            "this run has no gradients and no moments; track with measure=[rankscope.Gradients()]"
        )
    labels = {"muon_distance": "distance from orthogonal"}
    whole = ds.rankscope.whole()
    panels = [Panel(titles[n], whole[n], labels.get(n, "stable rank")) for n in names]
    return _maps(panels, "matrix")


def activations_over_time(ds: xr.Dataset) -> Figure:
    """Draw rank, similarity and dormant units of each module's outputs as lines over training.

    Lines from dark to light are modules in the order of the model. Dashed lines are ranks of the
    tokens less their mean.
    """
    ds = _measured(ds, "activations")
    names = [str(name) for name in ds["activation"].to_numpy()]
    shown = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, MOST_LINES).astype(int))]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, colour in zip(shown, shades(len(shown)), strict=True):
        one = ds.sel(activation=name)
        marker = point_or_line(one["step"].to_numpy())
        lines = [
            (left, "activation_effective_rank", "-"),
            (left, "activation_effective_rank_centered", "--"),
            (middle, "activation_token_similarity", "-"),
            (right, "activation_dormant", "-"),
        ]
        for axes, variable, style in lines:
            values = one[variable].to_numpy()
            label = name if axes is right else ""
            axes.plot(
                times_of(one).values,
                values,
                color=colour,
                linestyle=style,
                marker=marker,
                label=label,
            )
    left.set(title="rank of the tokens", ylabel="effective rank (dashed: centred)", ylim=(0, None))
    middle.set(title="similarity of tokens", ylabel="mean cosine")
    right.set(title="dormant units", ylabel="share of units", ylim=(-0.02, 1.02))
    for axes in (left, middle, right):
        times_of(ds).draw(axes)
    legend_below(figure, right.get_lines())
    return figure


def attention_over_time(ds: xr.Dataset) -> Figure:
    """Draw how widely each head looks, its largest logit, and the bound on it."""
    ds = _measured(ds, "attention")
    even = ds["attention_entropy_even"]
    panels = [
        Panel("entropy over an even spread", ds["attention_entropy"] / even, "ratio", 0.0, 1.0),
        Panel("largest logit seen", ds["attention_max_logit"], "logit"),
        Panel("bound on any logit", ds["attention_logit_bound"], "logit"),
    ]
    return _maps(panels, "head")


def rotation_over_time(ds: xr.Dataset) -> Figure:
    """Draw how far leading subspaces have turned, and the number of intruder directions."""
    ds = _whole(ds, "rotation")
    agreements = {"start": "the start", "last": "the last snapshot", "base": "the base"}
    panels = [
        Panel(f"agreement with {title}", ds[f"rotation_{name}"], "mean squared cosine", 0.0, 1.0)
        for name, title in agreements.items()
        if f"rotation_{name}" in ds
    ]
    if bool(ds["intruders"].notnull().any()):
        panels.append(Panel("intruder directions", ds["intruders"], "number", 0.0))
    return _maps(panels, "matrix")


def tails_over_time(ds: xr.Dataset, *, of: str = "singular_values") -> Figure:
    """Draw tail exponent, values beyond noise and muP's scale of the stored spectra `of`."""
    accessor = ds.rankscope.whole().rankscope
    panels = [
        Panel("tail exponent", accessor.tail_exponent(of=of), "alpha"),
        Panel("values beyond noise", accessor.values_beyond_noise(of=of), "number", 0.0),
        Panel("scale under muP", log10(accessor.mup_scale(of=of)), "log10 of sqrt(n/m) x largest"),
    ]
    return _maps(panels, "matrix")


def log10(values: xr.DataArray) -> xr.DataArray:
    """Return decadic logarithms; NaN of 0."""
    return values.copy(data=np.log10(values.where(values > 0).to_numpy()))


def _measured(ds: xr.Dataset, name: str) -> xr.Dataset:
    ds.rankscope.measure(name)  # raises if the run has none
    return ds


def _whole(ds: xr.Dataset, name: str) -> xr.Dataset:
    whole: xr.Dataset = _measured(ds, name).rankscope.whole()
    return whole


def _maps(panels: Sequence[Panel], dim: str) -> Figure:
    """Draw heat maps side by side, with rows named in the first."""
    names = [str(name) for name in panels[0].values[dim].to_numpy()]
    height = min(max(3.0, 1.4 + 0.17 * len(names)), 11.0)
    figure = Figure(figsize=(1.6 + 3.1 * len(panels), height), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        values = panel.values.transpose(dim, "step").to_numpy().astype(float)
        time = TrainingTime(panel.values["step"].to_numpy())
        mesh = draw_heat_map(axes, values, time, lowest=panel.lowest, highest=panel.highest)
        axes.set_title(panel.title, fontsize="medium")
        figure.colorbar(mesh, ax=axes, label=panel.label, location="bottom", aspect=30)
        axes.set_yticks([])
    label_rows(grid[0], names)
    return figure
