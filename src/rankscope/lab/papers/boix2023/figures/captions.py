"""The figures of boix2023 by number. Each function draws one; its docstring is the caption."""

from collections.abc import Sequence

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures.style import evenly
from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.papers.boix2023.claims.full_matrices import rise_dataset
from rankscope.lab.papers.boix2023.figures.activation import activation_errors
from rankscope.lab.papers.boix2023.figures.axes import power_of_ten
from rankscope.lab.papers.boix2023.figures.full_head import singular_value_rises
from rankscope.lab.papers.boix2023.figures.perturbation import perturbations
from rankscope.lab.papers.boix2023.figures.staircase import (
    entries_and_staircase,
    flow_and_staircase,
)
from rankscope.lab.papers.boix2023.figures.toy import (
    entries_by_alpha,
    loss_by_alpha,
    toy_attention,
)
from rankscope.lab.papers.boix2023.figures.vits import VIT_FIGURES
from rankscope.lab.papers.boix2023.runs import TITLES
from rankscope.lab.papers.boix2023.stages import (
    LARGEST_ALPHA,
    error_dataset,
    flows_of,
    stages_in_flows,
)
from rankscope.lab.running.run_key import RunKey

MOST_ALPHAS = 3  # drawn against Algorithm 1
PERTURBED = RunKey("teacher-1", {"log10_alpha": -32.0}, experiment="boix2023/assumptions")
FULL_HEADS = ("aligned-1e-4", "gaussian-1e-8", "gaussian-1e-32")


def figure_3(runs: Runs) -> Figure:
    """Entries, singular values and losses of a diagonal head (a-c) and of a full one (d-f).

    The rows have two different teachers. The diagonal head learns from a diagonal one, as in the
    paper. The teacher of the full head is ours: its products are aligned, so that both rise in
    turn. With a Gaussian teacher, as in the paper, K-Q rises far later than V-O (see the figures of
    rises and claim B6).
    """
    full = runs.of("aligned-1e-4").kind("full")
    return toy_attention(first_seed(runs.of("diagonal")), first_seed(full))


def rises_figure(runs: Runs) -> Figure:
    """Singular values of a full head with their half-rise times and widths.

    Bars reach from 10% to 90% of the rise, with a mark at half. Claim B6 asks that marks are
    further apart than bars are long.
    """
    ds = first_seed(runs)
    figure = singular_value_rises(ds, rise_dataset(ds))
    figure.suptitle(_title(runs), fontsize="medium")
    return figure


def plateau_figure(runs: Runs) -> Figure:
    """Weights perturbed at random times, beside the weights without a perturbation (fig. 9).

    Three of the trials of each noise, the first, the middle and the last. Below each, the distance
    of the two over the size of the unperturbed weights at the end; claim B5 asks for at most 5%
    there. The paper says that training brings them back, since they were close to a strict local
    minimum.
    """
    return perturbations(first_seed(runs), "plateau", title=_title(runs))


def newly_active_figure(runs: Runs) -> Figure:
    """Weights perturbed when one had just become active, beside those without one (fig. 10).

    Panels are as in figure 9. The paper says that training goes to the same minimum as without the
    perturbation.
    """
    return perturbations(first_seed(runs), "newly active", title=_title(runs))


def _title(runs: Runs) -> str:
    """Return what one run is, in words: "head, teacher 1, alpha = 1e-32, seed 0"."""
    (key,) = runs
    words = [TITLES.get(("", key.network), key.network), f"seed {min(runs.only)}"]
    if (log10_alpha := key.variant.get("log10_alpha")) is not None:
        words.insert(1, rf"$\alpha$ = {power_of_ten(float(log10_alpha))}")
    return ", ".join(words)


def first_seed(runs: Runs) -> xr.Dataset:
    """Return the first seed of the one run, which figures of single runs show."""
    ds: xr.Dataset = runs.only[min(runs.only)]
    return ds


def first_flows(runs: Runs) -> dict[float, xr.Dataset]:
    """Return the flows of the one network by log10 alpha, for the first seed."""
    (network,) = runs.networks
    return flows_of(runs, network, runs.seeds[0])


def _algorithm(runs: Runs) -> xr.Dataset:
    return first_seed(runs.kind("algorithm"))


def _loss(runs: Runs) -> Figure:
    """The loss over rescaled time, a panel for each initial scale alpha (fig. 6).

    The pale line is the loss at the smallest alpha. The flows end after some stages, so the loss
    stays above 0, and the axis does not begin there. The paper says that the loss falls in stages:
    plateaus, with drops that become sharper as alpha falls.
    """
    return loss_by_alpha(first_flows(runs))


def _entries_kq(runs: Runs) -> Figure:
    """Entries of K-Q, the product of key and query weights, by alpha (fig. 7).

    Each line is one diagonal entry over rescaled time. Entries that become active at the smallest
    alpha have a colour, by their order among the entries of both products. The paper says that the
    lines tend to a limit as alpha falls. Entries leave zero one after another, and their order and
    times settle.
    """
    return entries_by_alpha(first_flows(runs), "kq")


def _entries_vo(runs: Runs) -> Figure:
    """Entries of V-O, the product of value and output weights, by alpha (fig. 8).

    Lines and colours are as for K-Q. The paper says that, as alpha falls, the lines tend to a limit
    in which entries leave zero one after another.
    """
    return entries_by_alpha(first_flows(runs), "vo")


def _staircase(runs: Runs) -> Figure:
    """Gradient flow from three alphas beside Algorithm 1 (not in the paper).

    The panels show entries of the products, their logarithmic coordinates, and the loss. Broad
    lines are Algorithm 1. The theorem says that the flow approaches this staircase as alpha falls.
    """
    return flow_and_staircase(_algorithm(runs), _drawn_flows(runs))


def _staircase_entries(runs: Runs) -> Figure:
    """Entries of the products in gradient flow beside Algorithm 1's staircase (not in the paper).

    Broad lines are Algorithm 1, labelled with the entry that each stage activates; the theorem says
    that flows (thin lines) approach them as alpha falls.
    """
    return entries_and_staircase(_algorithm(runs), _drawn_flows(runs))


def _drawn_flows(runs: Runs) -> dict[float, xr.Dataset]:
    flows = first_flows(runs)
    small = sorted(alpha for alpha in flows if alpha <= LARGEST_ALPHA)
    return {small[i]: flows[small[i]] for i in reversed(evenly(len(small), MOST_ALPHAS))}


def _errors(runs: Runs) -> Figure:
    """Errors of Algorithm 1's activation times, against log(1/alpha) (not in the paper).

    The error is the distance between the times at which an entry becomes active in the flow and in
    the algorithm. The theorem says that it falls in proportion to 1 / log(1/alpha), parallel to the
    dashed line.
    """
    compared = stages_in_flows(_algorithm(runs), first_flows(runs))
    figure = activation_errors(error_dataset(compared))
    figure.suptitle(_title(runs.kind("algorithm")), fontsize="medium")
    return figure


def _perturbed_runs(keys: Sequence[RunKey]) -> list[RunKey]:
    return [key for key in keys if key == PERTURBED]


HEAD = runs_of("teacher-1", experiment="boix2023/toy-diag")
TRANSFORMER = runs_of("bases", experiment="boix2023/diag-transformer")

FIGURES: tuple[FigureRule, ...] = (
    FigureRule("figure-3", figure_3, runs_of("aligned-1e-4", "diagonal")),
    FigureRule("figure-6", _loss, HEAD),
    FigureRule("figure-7", _entries_kq, HEAD),
    FigureRule("figure-8", _entries_vo, HEAD),
    FigureRule("staircase", _staircase, HEAD),
    FigureRule("staircase-entries", _staircase_entries, HEAD),
    FigureRule("activation-errors", _errors, HEAD),
    FigureRule("figure-9", plateau_figure, _perturbed_runs),
    FigureRule("figure-10", newly_active_figure, _perturbed_runs),
    *VIT_FIGURES,
    FigureRule("diag-transformer-loss", _loss, TRANSFORMER),
    FigureRule("diag-transformer-entries-kq", _entries_kq, TRANSFORMER),
    FigureRule("diag-transformer-entries-vo", _entries_vo, TRANSFORMER),
    FigureRule("diag-transformer-staircase", _staircase, TRANSFORMER),
    FigureRule("diag-transformer-activation-errors", _errors, TRANSFORMER),
    *(
        FigureRule(f"rises-{network}", rises_figure, runs_of(network, kind="full"))
        for network in FULL_HEADS
    ),
)
