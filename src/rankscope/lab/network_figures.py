"""The figures of yunis2024 by their number, from the runs of one network or of all.

Each function makes one; its docstring is the caption. Networks that were not run are left out.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures import (
    Setting,
    alignment_by_decay,
    alignment_of_networks,
    ends_by_decay,
    grokking_by_decay,
    labels_compared,
    losses_by_decay,
    ranks_of_networks,
    sample_sheets,
    spectra_by_decay,
    spectra_of_networks,
)
from rankscope.lab import reading
from rankscope.lab.claims.grokking import crossing, mean_rank, steepest_drop
from rankscope.lab.experiment import FigureMaker, Results, TooFewRuns

Thing = TypeVar("Thing")

NAMES = {"vgg": "VGG", "unet": "UNet", "lstm": "LSTM", "lm": "Transformer", "grok": "grokking"}
PAPER = ("vgg", "unet", "lstm", "lm")  # in the order of the paper's panels


def figure_1(results: Results) -> Figure:
    """Singular values of one weight matrix in the middle of each network, over training.

    Each line is one singular value, darker where larger. With several seeds it is their mean, and
    pale bands around the 1st, 4th, 16th, 64th reach from the lowest to the highest seed. Snapshots
    stand at equal distances; ticks give the training step. Base is the paper's decay of figures
    1-3. The paper says: large values grow out of proportion to small ones.
    """
    return spectra_of_networks(base_settings(results))


def figure_2(results: Results) -> Figure:
    """Normalised effective rank of every weight matrix over training.

    A row is a matrix, the first of the network on top; a column is a snapshot; each network has a
    colour scale of its own. The effective rank is exp of the entropy of the singular values as
    shares of their sum, divided by min(m, n), and with several seeds their mean. The paper says:
    it falls in nearly all matrices.
    """
    return ranks_of_networks(base_settings(results))


def figure_3(results: Results) -> Figure:
    """Alignment of singular vectors of neighbouring matrices over training.

    First row: the overlap A_ii of the i-th output direction of one matrix with the i-th input
    direction of the next, for one pair. Second: its mean a over the first ten directions, for every
    pair, in the order of the network. Where pairs differ in width they differ in the level of
    chance, so that bands in this map need not be alignment. Third (not in the paper): a divided by
    the pair's own background, the mean overlap of directions that do not belong together; white is
    chance, red above, blue below. Most rules on alignment judge this number. Fourth (not in the
    paper): a of the pair of the first row, as measured and divided by the lengths of the vectors'
    parts that meet, with the background of both and the chance level of random directions. With
    several seeds all this is their mean, and bands reach from the lowest to the highest. The paper
    says: alignment is weak, absent at the start, and appears early in the top directions, then
    diffuses.
    """
    return alignment_of_networks(base_settings(results))


def figure_4(results: Results) -> Figure:
    """Singular values and effective ranks over training, for every weight decay.

    Rows are decays, from none at the top; that of figures 1-3 is called base, and the paper's
    sweep of the VGG does not have it. Left: singular values of one matrix (as in figure 1; each
    panel has its own vertical axis). Right: normalised effective rank of every matrix (as in figure
    2; the rows of a network share one colour scale). Runs that collapsed are named in their row:
    their flat spectra read as high rank. The paper says: more decay, lower rank.
    """
    return spectra_by_decay(sweep_settings(results))


def figure_5(results: Results) -> Figure:
    """Alignment of neighbouring matrices over training, for every weight decay.

    Each decay has two rows. Upper, as in the paper: overlaps A_ii of one pair on the left, their
    mean a over the first ten directions for every pair on the right. Lower (not in the paper): a of
    the pair on the left, as measured and normalised, with background and chance; and on the right a
    over background for every pair: white is chance, red above, blue below. Grey, and where lines
    end: a matrix has decayed to nothing, and what is left of its directions is rounding. The decays
    of a network share scales. The paper says: more decay, stronger alignment, strongest in the
    Transformer.
    """
    return alignment_by_decay(sweep_settings(results))


def figure_6(results: Results) -> Figure:
    """Training loss of each network, and of the same network with half of each SVD removed.

    Rows are decays, from none at the top. Every matrix but the last linear layer is replaced by
    the top or by the bottom half of its SVD; BatchNorm statistics are measured anew. With several
    seeds, lines are means and bands reach from the lowest to the highest. Dotted: the loss of the
    best guess that ignores the input. The paper says: the top half comes close to the full network,
    the closer the more decay; the bottom half does not; training still works at high decay.
    """
    return losses_by_decay(sweep_settings(results))


def figure_7(results: Results) -> Figure:
    """A multilayer perceptron that learns true labels (top) and random labels (bottom).

    Singular values of one middle matrix, normalised effective rank of each matrix, and alignment of
    each neighbouring pair with its background (dashed). Both rows share their vertical axes; with
    several seeds, lines are means and bands reach from the lowest to the highest. The paper says:
    with true labels the middle layers have lower rank and stay aligned; with random labels
    alignment comes and fades.
    """
    runs = {"true labels": "mlp/true-labels", "random labels": "mlp/random-labels"}
    settings = [setting(title, results[name]) for title, name in runs.items() if name in results]
    return labels_compared(some(settings, "mlp/true-labels or mlp/random-labels"))


def grokking(results: Results) -> Figure:
    """Loss, validation accuracy and effective ranks of modular addition (not in the paper).

    Columns are decays, steps are logarithmic, and every line is one seed. Among the ranks, broad:
    their mean over matrices. A colour for each seed: accuracy, this mean, and vertical lines;
    dotted where half of the held-out sums are right for the first time; dashed, at the largest
    decay, which is judged, where the mean rank falls most steeply. The question: does rank fall
    when the network begins to generalise?
    """
    settings = some(by_decay(results, "grok"), "grok")
    return grokking_by_decay(settings, mean=mean_rank, jump=crossing, drop=steepest_drop)


def samples(results: Results) -> Figure:
    """Images the diffusion network made from noise after training (not in the paper).

    A sheet for each weight decay, of its first seed. They tell whether a network of low rank still
    does its work.
    """
    return sample_sheets(some(by_decay(results, "unet"), "unet"))


def decay_overview(results: Results) -> Figure:
    """Rank and alignment at the end of training against weight decay (not in the paper).

    Top: normalised effective rank, median over matrices. Middle: mean overlap a of the first ten
    directions, median over pairs, as measured and normalised, each with its background. Bottom: a
    over background, median over pairs; dotted, chance. Pairs in which a matrix has decayed to
    nothing are left out. A point is one seed, hollow if it collapsed; lines go through the means of
    the others.
    """
    return ends_by_decay(sweep_settings(results, of=(*PAPER, "grok")))


SWEEP_FIGURES: dict[str, FigureMaker] = {
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "decay-overview": decay_overview,
}
ALL_FIGURES: dict[str, FigureMaker] = {
    **SWEEP_FIGURES,
    "figure-7": figure_7,
    "grokking": grokking,
    "samples": samples,
}


def base_settings(results: Results) -> dict[str, Setting]:
    """The runs of figures 1-3 by the name of their network."""
    there = [network for network in PAPER if reading.decays(results, network)]
    return {
        NAMES[network]: setting(
            decay_title(network, reading.base_decay(results, network)),
            reading.base(results, network),
        )
        for network in some(there, f"{', '.join(PAPER)} at some decay")
    }


def sweep_settings(results: Results, *, of: Sequence[str] = PAPER) -> dict[str, list[Setting]]:
    """The settings of every network by its name, as the rows of figures 4-6."""
    found = {NAMES[network]: by_decay(results, network) for network in of}
    some([name for name, settings in found.items() if settings], ", ".join(of))
    return {name: settings for name, settings in found.items() if settings}


def by_decay(results: Results, network: str) -> list[Setting]:
    """A setting for each decay that was run, ascending; that of figures 1-3 is named as base."""
    return [
        setting(decay_title(network, decay), seeds)
        for decay, seeds in reading.decays(results, network).items()
    ]


def decay_title(network: str, decay: float) -> str:
    return f"weight decay {decay:g}{' (base)' if decay == reading.BASE.get(network) else ''}"


def setting(title: str, seeds: Mapping[int, xr.Dataset]) -> Setting:
    """Runs of all seeds in order, without the pairs of other taps; collapsed ones named."""
    near = (reading.neighbours(seeds[seed]) for seed in sorted(seeds))
    runs = tuple(ds.assign(reading.overlaps(ds)) for ds in near)
    return Setting(title, runs, tuple(map(reading.collapsed, runs)))


def some(things: list[Thing], needed: str) -> list[Thing]:
    """`things`, if there are any."""
    if not things:
        raise TooFewRuns(f"this figure needs runs of {needed}; no seed has all of them")
    return things
