"""Figures that put several runs side by side."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rankscope.figures.over_time import draw_cells, label_rows, point_or_line
from rankscope.figures.style import LOG_FROM, legend_below, shades
from rankscope.figures.training import heat_map_height, with_spectra

MOST_RUNS = 8


def compare_runs(runs: Mapping[str, xr.Dataset]) -> Figure:
    """Draw loss and mean normalised effective rank of several runs over training steps.

    A run without a scalar "loss" has no line in the left panel. The right panel shows the mean
    over whole matrices that were measured at every snapshot.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"compare 1 to {MOST_RUNS} runs in one figure, got {len(runs)}")
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    losses: list[float] = []
    metric, label = _common_rank(runs)
    for (name, ds), colour in zip(runs.items(), shades(len(runs)), strict=True):
        ranks = getattr(with_spectra(ds).rankscope.whole().rankscope, metric)()
        # A matrix that is lost in mid-run would move the mean of the others.
        mean = ranks.dropna("matrix").mean("matrix")
        measured, steps = mean.to_numpy(), mean["step"].to_numpy()
        if "loss" in ds:
            known = ds["loss"].dropna("step")
            values = known.to_numpy()
            marker = point_or_line(values)
            left.plot(known["step"], values, color=colour, marker=marker, label=name)
            losses += values.tolist()
        right.plot(steps, measured, color=colour, marker=point_or_line(measured), label=name)
    finite = [loss for loss in losses if np.isfinite(loss)]
    if finite and min(finite) > 0 and max(finite) > LOG_FROM * min(finite):
        left.set_yscale("log")
    left.set(title="loss", xlabel="training step", ylabel="loss")
    right.set(title="mean over matrices", xlabel="training step", ylabel=label)
    legend_below(figure, right.get_lines())
    return figure


def compare_matrices(runs: Mapping[str, xr.Dataset]) -> Figure:
    """Draw the last normalised effective rank of every matrix, one column per run."""
    metric, label = _common_rank(runs)
    ranks = {
        name: getattr(ds.isel(step=[-1]).rankscope.whole().rankscope, metric)()[0]
        for name, ds in runs.items()
    }
    names = list(dict.fromkeys(str(n) for r in ranks.values() for n in r["matrix"].to_numpy()))
    values = np.stack([r.reindex(matrix=names).to_numpy() for r in ranks.values()], axis=1)
    figure = Figure(
        figsize=(2.5 + 1.2 * len(runs), heat_map_height(len(names))), layout="constrained"
    )
    axes = figure.add_subplot()
    mesh = draw_cells(axes, values, np.arange(len(runs) + 1) - 0.5, Normalize())
    label_rows(axes, names)
    axes.set_xticks(range(len(runs)), labels=list(runs), rotation=30, ha="right")
    axes.set(title=f"{metric.removeprefix('normalized_').replace('_', ' ')} at the last snapshot")
    figure.colorbar(mesh, ax=axes, label=label)
    return figure


def _common_rank(runs: Mapping[str, xr.Dataset]) -> tuple[str, str]:
    """Return a metric that all runs have, and its label: some keep leading values alone."""
    if all(ds.rankscope.has_all_values for ds in runs.values()):
        return "normalized_effective_rank", "effective rank / min(m, n)"
    return "stable_rank", "stable rank"
