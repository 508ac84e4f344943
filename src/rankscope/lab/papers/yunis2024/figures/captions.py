"""The figures of yunis2024 by number. Each function draws one; its docstring is the caption."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rankscope.figures.seeds import Setting
from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.runs import Runs, Seeds, runs_of
from rankscope.lab.papers.yunis2024.claims.grokking import crossing, mean_rank, steepest_drop
from rankscope.lab.papers.yunis2024.figures.decay import ends_by_decay, ranks_by_decay
from rankscope.lab.papers.yunis2024.figures.grokking import grokking_by_decay
from rankscope.lab.papers.yunis2024.figures.memorization import labels_compared
from rankscope.lab.papers.yunis2024.figures.networks import (
    alignment_of_networks,
    ranks_of_networks,
    spectra_of_networks,
)
from rankscope.lab.papers.yunis2024.figures.samples import sample_sheets
from rankscope.lab.papers.yunis2024.figures.sweeps import alignment_by_decay, spectra_by_decay
from rankscope.lab.papers.yunis2024.figures.truncated import losses_by_decay
from rankscope.lab.papers.yunis2024.runs import (
    BASE,
    base_runs,
    decay_of,
    decay_sweeps,
    neighbours,
    overlaps,
)
from rankscope.lab.training.outcome import collapsed

TITLES = {"vgg": "VGG", "unet": "UNet", "lstm": "LSTM", "lm": "Transformer", "grok": "grokking"}


def figure_1(runs: Runs) -> Figure:
    """Singular values of one weight matrix in the middle of each network, over training.

    Each line is one singular value, darker if larger. With several seeds it is their mean, and pale
    bands around the 1st, 4th, 16th and 64th reach from the lowest to the highest seed. Snapshots
    stand at equal distances; ticks give the training step. "Base" marks the paper's decay of
    figures 1-3. The paper says that large values grow out of proportion to small ones.
    """
    return spectra_of_networks(base_settings(runs))


def figure_2(runs: Runs) -> Figure:
    """Normalised effective rank of every weight matrix over training.

    A row is a matrix, the first of the network on top. A column is a snapshot. Each network has its
    own colour scale. The effective rank is exp of the entropy of the singular values as shares of
    their sum, here divided by min(m, n). With several seeds we show their mean. The paper says that
    it falls in nearly all matrices.
    """
    return ranks_of_networks(base_settings(runs))


def figure_3(runs: Runs) -> Figure:
    """Alignment of singular vectors of neighbouring matrices over training.

    First row: the overlap A_ii of the i-th output direction of one matrix with the i-th input
    direction of the next, for one pair. Second row: its mean a over the first ten directions, for
    every pair in the order of the network. Pairs of different width have different levels of
    chance, so bands in this map need not be alignment. Third row (not in the paper): a divided by
    the pair's background, the mean overlap of directions that do not belong together. White is
    chance, red above, blue below. Most rules on alignment judge this number. Fourth row (not in the
    paper): a of the pair of the first row, raw and normalised, with the background of both and the
    chance level of random directions. The normalised a divides by the lengths of the parts of
    vectors that meet. With several seeds we show their mean, and bands reach from the lowest to the
    highest. The paper says that alignment is weak, absent at the start, appears early in the top
    directions, and then diffuses.
    """
    return alignment_of_networks(base_settings(runs))


def figure_4(runs: Runs) -> Figure:
    """Singular values and effective ranks over training, for every weight decay.

    Rows are decays, from none at the top. "Base" marks the decay of figures 1-3, which the paper's
    sweep of the VGG lacks. Left: singular values of one matrix, as in figure 1, each panel with its
    own vertical axis. Right: normalised effective rank of every matrix, as in figure 2; the rows of
    a network share one colour scale. Headings name runs that collapsed, whose flat spectra read as
    high rank. The paper says that more decay gives lower rank.
    """
    return spectra_by_decay(sweep_settings(runs))


def figure_5(runs: Runs) -> Figure:
    """Alignment of neighbouring matrices over training, for every weight decay.

    Each decay has two rows. Upper row, as in the paper: overlaps A_ii of one pair on the left, and
    their mean a over the first ten directions for every pair on the right. Lower row (not in the
    paper): a of the one pair on the left, raw and normalised, with background and chance; a over
    background for every pair on the right. White is chance, red above, blue below. Cells are grey
    and lines end once a matrix has decayed to zero, since its directions are then rounding errors.
    The decays of a network share scales. The paper says that more decay gives stronger alignment,
    strongest in the Transformer.
    """
    return alignment_by_decay(sweep_settings(runs))


def figure_6(runs: Runs) -> Figure:
    """Training loss of each network, and of the same network with half of each SVD removed.

    Rows are decays, from none at the top. We replace every matrix but the last linear layer by the
    top or by the bottom half of its SVD, and measure BatchNorm statistics anew. With several seeds,
    lines are means and bands reach from the lowest to the highest. Dotted: the loss of the best
    guess that ignores the input. The paper says that the top half comes close to the full network,
    closer with more decay, and that the bottom half does not. It also says that training still
    works at high decay.
    """
    return losses_by_decay(sweep_settings(runs))


def figure_7(runs: Runs) -> Figure:
    """A multilayer perceptron that learns true labels (top) and random labels (bottom).

    The columns show singular values of one middle matrix, normalised effective rank of each matrix,
    and alignment of each neighbouring pair with its background (dashed). Both rows share their
    vertical axes. With several seeds, lines are means and bands reach from the lowest to the
    highest. The paper says that with true labels the middle layers have lower rank and stay
    aligned, while with random labels alignment comes and fades.
    """
    by_labels = runs.of("mlp").by("labels")
    return labels_compared(
        [setting(f"{labels} labels", by_labels[labels]) for labels in ("true", "random")]
    )


def grokking(runs: Runs) -> Figure:
    """Loss, validation accuracy and effective ranks of modular addition (not in the paper).

    Columns are decays, steps are logarithmic, and every line is one seed. The broad line among the
    ranks is their mean over matrices. Accuracy, this mean and vertical lines have a colour for each
    seed. A dotted line marks where half of the held-out sums are right for the first time. At the
    largest decay, which is judged, a dashed line marks where the mean rank falls most steeply. The
    question is whether rank falls when the network begins to generalise.
    """
    settings = by_decay(runs, "grok")
    return grokking_by_decay(settings, mean=mean_rank, jump=crossing, drop=steepest_drop)


def samples(runs: Runs) -> Figure:
    """Images the diffusion network made from noise after training (not in the paper).

    Each weight decay has a sheet, from its first seed. The sheets show whether a network of low
    rank still does its work.
    """
    return sample_sheets(by_decay(runs, "unet"))


def rank_by_decay(runs: Runs) -> Figure:
    """Effective rank at the end of training against weight decay (not in the paper).

    Median over matrices of the effective rank divided by min(m, n). A point is one seed. A hollow
    point is a run that collapsed, whose flat spectrum reads as high rank. Lines go through the
    means of the others.
    """
    return ranks_by_decay(sweep_settings(runs, networks=(*BASE, "grok")))


def decay_overview(runs: Runs) -> Figure:
    """Rank and alignment at the end of training against weight decay (not in the paper).

    Top: normalised effective rank, median over matrices. Middle: mean overlap a of the first ten
    directions, median over pairs, raw and normalised, each with its background. Bottom: a over
    background, median over pairs; the dotted line is chance. Pairs with a matrix that has decayed
    to zero are left out. A point is one seed, hollow if it collapsed. Lines go through the means of
    the others.
    """
    return ends_by_decay(sweep_settings(runs, networks=(*BASE, "grok")))


FIGURES = (
    FigureRule("figure-1", figure_1, base_runs),
    FigureRule("figure-2", figure_2, base_runs),
    FigureRule("figure-3", figure_3, base_runs),
    FigureRule("figure-4", figure_4, decay_sweeps),
    FigureRule("figure-5", figure_5, decay_sweeps),
    FigureRule("figure-6", figure_6, decay_sweeps),
    FigureRule("figure-7", figure_7, runs_of("mlp")),
    FigureRule("rank-by-decay", rank_by_decay, runs_of(*BASE, "grok", parameter="decay")),
    FigureRule("decay-overview", decay_overview, runs_of(*BASE, "grok", parameter="decay")),
    FigureRule("grokking", grokking, runs_of("grok", parameter="decay")),
    FigureRule("samples", samples, runs_of("unet", parameter="decay")),
)


def base_settings(runs: Runs) -> dict[str, Setting]:
    """Return the runs of figures 1-3 by the title of their network, in the paper's order."""
    return {
        TITLES[network]: setting(decay_title(network, decay_of(key)), runs[key])
        for network in BASE
        for key in runs.of(network)
    }


def sweep_settings(
    runs: Runs, *, networks: Sequence[str] = tuple(BASE)
) -> dict[str, list[Setting]]:
    """Return the settings of each network by its title: the rows of figures 4-6."""
    return {TITLES[name]: by_decay(runs, name) for name in networks if runs.of(name)}


def by_decay(runs: Runs, network: str) -> list[Setting]:
    """Return a setting for each decay, ascending."""
    return [
        setting(decay_title(network, decay), seeds)
        for decay, seeds in runs.of(network).by("decay").items()
    ]


def decay_title(network: str, decay: float) -> str:
    """Return "weight decay 0.1 (base)"; base is the decay of figures 1-3."""
    return f"weight decay {decay:g}{' (base)' if decay == BASE.get(network) else ''}"


def setting(title: str, seeds: Seeds) -> Setting:
    """Return the runs of all seeds in order, without the pairs of other filter taps."""
    near = (neighbours(seeds[seed]) for seed in sorted(seeds))
    runs = tuple(ds.assign(overlaps(ds)) for ds in near)
    return Setting(title, runs, tuple(map(collapsed, runs)))
