"""Figures of boix2023's toy experiments by their number, from the runs of an experiment."""

from functools import partial

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures import (
    activation_errors,
    entries_by_alpha,
    flow_and_staircase,
    loss_by_alpha,
    perturbations,
    singular_value_rises,
    toy_attention,
)
from rankscope.figures.style import evenly
from rankscope.lab.claims.full_matrices import rise_dataset
from rankscope.lab.comparison import LARGEST_ALPHA, error_dataset, flows_of, stages_in_flows
from rankscope.lab.experiment import FigureMaker, Results

MOST_ALPHAS = 3  # drawn against Algorithm 1


def stage_figures(network: str) -> dict[str, FigureMaker]:
    """Loss and entries by alpha, flows against Algorithm 1's staircase, errors of its times."""
    return {
        "loss": partial(_loss, network=network),
        "entries-kq": partial(_entries_kq, network=network),
        "entries-vo": partial(_entries_vo, network=network),
        "staircase": partial(_staircase, network=network),
        "activation-errors": partial(_errors, network=network),
    }


def figure_3(results: Results, *, diagonal: str, full: str) -> Figure:
    """Entries, singular values and losses of a diagonal head (a-c) and of a full one (d-f).

    The full one's teacher is ours, found by trying until both products rise in turn; of a Gaussian
    one, of which the paper speaks, K-Q does not rise by the end (figures of rises, claim B6).
    """
    return toy_attention(first_seed(results, diagonal), first_seed(results, full))


def rises_figure(results: Results, *, run: str) -> Figure:
    """Singular values of a full head with their half-rise times and widths."""
    ds = first_seed(results, run)
    figure = singular_value_rises(ds, rise_dataset(ds))
    figure.suptitle(_name(results, run), fontsize="medium")
    return figure


def plateau_figure(results: Results, *, run: str) -> Figure:
    """Weights perturbed at random times, beside those of the run that was not perturbed (fig. 9).

    The paper says training brings them back: they were close to a strict local minimum.
    """
    return perturbations(first_seed(results, run), "plateau", title=_name(results, run))


def newly_active_figure(results: Results, *, run: str) -> Figure:
    """Weights perturbed when one of them had just become active, beside those of the run that was
    not perturbed (fig. 10).

    The paper says training goes to the same minimum as without the perturbation.
    """
    return perturbations(first_seed(results, run), "newly active", title=_name(results, run))


def _name(results: Results, run: str) -> str:
    return f"{run}, seed {min(results[run])}"


def first_seed(results: Results, run: str) -> xr.Dataset:
    """Figures of single runs show the first seed there is."""
    return results[run][min(results[run])]


def first_flows(results: Results, network: str) -> dict[float, xr.Dataset]:
    """The flows of one network, of the first seed there is."""
    return flows_of(results, network, min(results[f"{network}/algorithm"]))


def _loss(results: Results, *, network: str) -> Figure:
    """The loss over rescaled time, a line for each initial scale alpha (fig. 6).

    The flows end after some stages, so that it stays above 0, where the axis does not begin. The
    paper says it falls in stages: plateaus, and drops that become sharper as alpha falls.
    """
    return loss_by_alpha(first_flows(results, network))


def _entries_kq(results: Results, *, network: str) -> Figure:
    """The entries of K-Q, the product of key and query weights, over rescaled time, a panel for
    each alpha (fig. 7).

    Each line is one diagonal entry. In colour are those that become active at the smallest alpha,
    by their order among the entries of both products. The paper says the lines tend to a limit as
    alpha falls: entries leave zero one after another, in an order and at times that settle.
    """
    return entries_by_alpha(first_flows(results, network), "kq")


def _entries_vo(results: Results, *, network: str) -> Figure:
    """The entries of V-O, the product of value and output weights, over rescaled time, a panel for
    each alpha (fig. 8).

    Lines and colours as those of K-Q. The paper says the same of them: as alpha falls they tend to
    a limit in which entries leave zero one after another.
    """
    return entries_by_alpha(first_flows(results, network), "vo")


def _staircase(results: Results, *, network: str) -> Figure:
    """Gradient flow from three alphas beside Algorithm 1 (broad lines): entries of the products,
    their logarithmic coordinates, and the loss.

    The theorem says the flow approaches the staircase as alpha falls.
    """
    flows = first_flows(results, network)
    small = sorted(alpha for alpha in flows if alpha <= LARGEST_ALPHA)
    drawn = {small[i]: flows[small[i]] for i in evenly(len(small), MOST_ALPHAS)}
    return flow_and_staircase(first_seed(results, f"{network}/algorithm"), drawn)


def _errors(results: Results, *, network: str) -> Figure:
    """How far the times at which entries become active are from Algorithm 1's, against
    log(1/alpha).

    The theorem says the distance falls like one over it: parallel to the dashed line.
    """
    flows = first_flows(results, network)
    compared = stages_in_flows(first_seed(results, f"{network}/algorithm"), flows)
    return activation_errors(error_dataset(compared))
