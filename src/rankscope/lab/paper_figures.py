"""Figures of boix2023's toy experiments by their number, from the runs of an experiment."""

from functools import partial
from typing import Literal

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures import (
    activation_errors,
    entries_by_alpha,
    flow_and_staircase,
    loss_by_alpha,
    singular_value_rises,
    toy_attention,
)
from rankscope.lab.claims.full_matrices import rise_dataset
from rankscope.lab.comparison import error_dataset, stages_in_flows
from rankscope.lab.experiment import FigureMaker, Results

STAIRCASE = (-8.0, -32.0, -1000.0)  # log10 of the alphas drawn against Algorithm 1


def stage_figures(network: str, *, seed: int) -> dict[str, FigureMaker]:
    """Figs. 6-8, the flows against Algorithm 1's staircase, and the errors of its times."""
    return {
        "figure-6": partial(_loss, network=network, seed=seed),
        "figure-7": partial(_entries, network=network, seed=seed, kind="kq"),
        "figure-8": partial(_entries, network=network, seed=seed, kind="vo"),
        "staircase": partial(_staircase, network=network, seed=seed),
        "activation-errors": partial(_errors, network=network, seed=seed),
    }


def figure_3(results: Results, *, diagonal: str, full: str, seed: int = 0) -> Figure:
    """Entries, singular values and losses of a diagonal and of a full head."""
    return toy_attention(results[diagonal][seed], results[full][seed])


def rises_figure(results: Results, *, run: str, seed: int = 0) -> Figure:
    """Singular values of a full head with their half-rise times and widths."""
    ds = results[run][seed]
    return singular_value_rises(ds, rise_dataset(ds))


def flows_of(results: Results, network: str, seed: int) -> dict[float, xr.Dataset]:
    """The flows of one network and seed by log10 of alpha."""
    names = [name for name in results if name.startswith(f"{network}/alpha-")]
    flows = [results[name][seed] for name in names]
    return {float(ds.attrs["log10_alpha"]): ds for ds in flows}


def _loss(results: Results, *, network: str, seed: int) -> Figure:
    return loss_by_alpha(flows_of(results, network, seed))


def _entries(results: Results, *, network: str, seed: int, kind: Literal["kq", "vo"]) -> Figure:
    return entries_by_alpha(flows_of(results, network, seed), kind)


def _staircase(results: Results, *, network: str, seed: int) -> Figure:
    flows = flows_of(results, network, seed)
    drawn = {alpha: flows[alpha] for alpha in STAIRCASE if alpha in flows}
    return flow_and_staircase(results[f"{network}/algorithm"][seed], drawn)


def _errors(results: Results, *, network: str, seed: int) -> Figure:
    flows = flows_of(results, network, seed)
    compared = stages_in_flows(results[f"{network}/algorithm"][seed], flows)
    return activation_errors(error_dataset(compared))
