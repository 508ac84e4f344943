"""The figures of boix2023 on vision transformers; docstrings are captions."""

from collections.abc import Mapping
from functools import partial

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures.seeds import Setting, number_of_seeds
from rankscope.figures.style import evenly, shades
from rankscope.lab.experiment import FigureRule, TooFewRuns
from rankscope.lab.judging.runs import Runs, runs_of
from rankscope.lab.papers.boix2023.figures.products import (
    change_against_start,
    leading_values,
    normalised_spectra,
)
from rankscope.lab.papers.boix2023.figures.stable_ranks import (
    KIND_COLOURS,
    Course,
    Looks,
    stable_ranks_by_block,
    stable_ranks_by_scale,
    stable_ranks_over_time,
)
from rankscope.lab.papers.boix2023.figures.vit_panels import (
    all_collapsed,
    block_numbers,
    counted,
    courses,
    default_setting,
    final_ranks,
    head_spectra,
    heads_of_blocks,
    label,
    leading,
    settings_by_scale,
    title,
)
from rankscope.lab.papers.boix2023.runs import KINDS, SETTLED, Kind, time_unit

SHOWN_SCALES = 3
SHOWN_BLOCKS = 3
LEAST_SCALES = 2
DOT = f"training loss < {SETTLED:g}"


def figure_1(runs: Runs) -> Figure:
    """Normalised spectra of one head's products at the start, and of their change in training.

    K-Q and V-O of the first head of the middle block (the paper does not say which it shows, and
    has K-Q alone), at the default initial scale, first seed that did not collapse. Each spectrum is
    divided by its largest value. Dashed: the product at the start, which has no more values than a
    head is wide. Green: its change since then, darker the later.
    The paper says: the change has low rank, and its rank grows gradually.
    """
    setting, ds = _first_default(runs)
    block = block_numbers(ds)[(len(block_numbers(ds)) - 1) // 2]
    heads = {_first_head(kind, block): head_spectra(ds, kind, block) for kind in KINDS}
    return _headed(normalised_spectra(heads), setting, f"seed {ds.attrs['seed']}")


def figure_2(runs: Runs) -> Figure:
    """The largest singular values of the change of both products, for three initial scales.

    K-Q above, V-O below; first head of the second block (the paper: a random head of the second
    layer), first seed that did not collapse. Scale 1 is the default. Every panel has axes of its
    own; a run that was stopped when its training loss had settled is shorter. The paper says:
    values grow one after another, the more clearly the smaller the scale.
    """
    settings = settings_by_scale(runs)
    largest_first = list(settings.values())[::-1]
    shown = [largest_first[i] for i in evenly(len(settings), SHOWN_SCALES)]
    runs = {
        setting.title + " (collapsed)" * all_collapsed(setting): counted(setting)[0]
        for setting in shown
    }
    block = _blocks(settings)[:2][-1]
    heads = {
        f"{name}\n{_first_head(kind, block)}": leading(ds, kind, block)
        for kind in KINDS
        for name, ds in runs.items()
    }
    return leading_values(heads, columns=len(runs))


def figure_4(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change at the end of training by initial scale, for every block.

    Mean and standard deviation over the heads of all seeds. Hollow: runs that collapsed. The paper
    shows K-Q at layers 1, 3 and 5, without saying whether it counts from 0 or 1, and promises V-O;
    here blocks are counted from 1. Runs that were stopped when their training loss had settled
    count as they were then. The paper says: the smaller the scale, the lower the rank.
    """
    settings = settings_by_scale(runs)
    if len(settings) < LEAST_SCALES:
        raise TooFewRuns(
            f"this figure needs runs of {LEAST_SCALES} initial scales; the results have "
            f"{', '.join(f'{scale:g}' for scale in settings)}"
        )
    ends = {scale: final_ranks(setting, kind) for scale, setting in settings.items()}
    blocks = {
        title(kind, block): {scale: ranks[i] for scale, ranks in ends.items()}
        for i, block in enumerate(_blocks(settings))
    }
    hollow = {scale for scale, setting in settings.items() if all_collapsed(setting)}
    return stable_ranks_by_scale(blocks, hollow=hollow)


def figure_5(runs: Runs, *, kind: Kind) -> Figure:
    """Singular values of the products at the start and of their change at the end, every block.

    Mean and standard deviation over heads at the default initial scale, first seed that did not
    collapse; the paper shows random heads of some layers, K-Q, and promises V-O. Both spectra are
    as they are, not divided by their largest value. The paper says: the change has extremely low
    rank beside the start.
    """
    setting, ds = _first_default(runs)
    figure = change_against_start(heads_of_blocks(ds, kind))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def spectra_in_training(runs: Runs) -> Figure:
    """Normalised spectra of products at the start and of their change in training, three blocks.

    K-Q above, V-O below, first head of each block, at the default initial scale, first seed that
    did not collapse; the paper does not say which heads and layers it shows. Lines as in figure 1.
    The paper says: the change has low rank, which grows gradually.
    """
    setting, ds = _first_default(runs)
    every = block_numbers(ds)
    blocks = [every[i] for i in evenly(len(every), SHOWN_BLOCKS)]
    heads = {_first_head(k, block): head_spectra(ds, k, block) for k in KINDS for block in blocks}
    figure = normalised_spectra(heads, columns=len(blocks))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def ranks_in_training(runs: Runs) -> Figure:
    """Stable rank of the change of K-Q and of V-O over training, for every block.

    Lines are means over the heads of all seeds, bands one standard deviation, at the default
    initial scale. Time is logarithmic, since the change has no rank at step 0. Claim B7 looks at
    what lies between the dotted line at epoch 1 and the dot, where the training loss of all seeds
    is below 1e-3, or the end. The paper says: the stable rank grows gradually.
    """
    setting = default_setting(runs)
    lines = {shown: courses(setting, kind) for kind, shown in KINDS.items()}
    blocks = {
        f"block {block}": {name: of[i] for name, of in lines.items()}
        for i, block in enumerate(block_numbers(setting.runs[0]))
    }
    looks = {name: Looks(colour) for name, colour in KIND_COLOURS.items()}
    figure = _over_time(blocks, looks, setting.runs[0])
    return _headed(figure, setting, f"heads of {number_of_seeds(len(counted(setting)))}")


def ranks_by_scale(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change over training by initial scale, for every block (not in the paper).

    Lines are means over the heads of all seeds that did not collapse, bands one standard deviation.
    Claim B7 looks at what lies between the vertical line at epoch 1 and the dot, where the training
    loss of all seeds is below 1e-3, or the end. Dotted: a scale at which every seed collapsed.
    """
    settings = settings_by_scale(runs)
    lines = {label(setting): courses(setting, kind) for setting in settings.values()}
    looks = {
        label(setting): Looks(colour, ":" if all_collapsed(setting) else "-")
        for setting, colour in zip(settings.values(), shades(len(settings)), strict=True)
    }
    blocks = {
        title(kind, block): {name: of[i] for name, of in lines.items()}
        for i, block in enumerate(_blocks(settings))
    }
    return _over_time(blocks, looks, next(iter(settings.values())).runs[0])


def ranks_by_variant(runs: Runs) -> Figure:
    """Stable rank of the change over training for variants of the network (not in the paper).

    Columns are networks of other sizes, and one that learns from augmented images, at the default
    initial scale, K-Q above and V-O below. Each line is one block, the mean over the heads of all
    seeds; the first block is darkest. Section 5 of the paper says of different model sizes that
    they show similar trends.
    """
    settings = {network: default_setting(runs.of(network)) for network in runs.networks}
    panels = {
        f"{name}, {shown}": courses(setting, kind)
        for kind, shown in KINDS.items()
        for name, setting in settings.items()
    }
    unit = time_unit(next(iter(settings.values())).runs[0])
    return stable_ranks_by_block(panels, columns=len(settings), unit=unit)


CIFAR10 = runs_of(experiment="boix2023/vit-cifar10")
CIFAR100 = runs_of(experiment="boix2023/vit-cifar100")
IMAGENET = runs_of(experiment="boix2023/vit-imagenet")
VARIANTS = runs_of(experiment="boix2023/vit-variants")

VIT_FIGURES = (
    FigureRule("figure-1", figure_1, CIFAR10),
    FigureRule("figure-2", figure_2, CIFAR10),
    FigureRule("figure-4", partial(figure_4, kind="kq"), CIFAR10),
    FigureRule("figure-4-vo", partial(figure_4, kind="vo"), CIFAR10),
    FigureRule("figure-5", partial(figure_5, kind="kq"), CIFAR10),
    FigureRule("figure-5-vo", partial(figure_5, kind="vo"), CIFAR10),
    FigureRule("figure-11", spectra_in_training, CIFAR10),
    FigureRule("figure-12", ranks_in_training, CIFAR10),
    FigureRule("figure-13", spectra_in_training, CIFAR100),
    FigureRule("figure-14", ranks_in_training, CIFAR100),
    FigureRule("figure-15", spectra_in_training, IMAGENET),
    FigureRule("figure-16", ranks_in_training, IMAGENET),
    FigureRule("figure-1-imagenet", figure_1, IMAGENET),
    FigureRule("stable-rank-kq", partial(ranks_by_scale, kind="kq"), CIFAR10),
    FigureRule("stable-rank-vo", partial(ranks_by_scale, kind="vo"), CIFAR10),
    FigureRule("stable-rank-by-variant", ranks_by_variant, VARIANTS),
)


def _first_default(runs: Runs) -> tuple[Setting, xr.Dataset]:
    """The default scale, and its first seed that did not collapse, or the first if all did."""
    setting = default_setting(runs)
    return setting, counted(setting)[0]


def _headed(figure: Figure, setting: Setting, of: str) -> Figure:
    """With a heading that says which runs it is made of, and which of them collapsed."""
    figure.suptitle(f"initial {label(setting)}, {of}", fontsize="medium")
    return figure


def _over_time(
    blocks: Mapping[str, Mapping[str, Course]], looks: Mapping[str, Looks], ds: xr.Dataset
) -> Figure:
    unit = time_unit(ds)
    begin = 1.0 if unit == "epoch" else None
    return stable_ranks_over_time(blocks, looks, unit=unit, begin=begin, settled=DOT)


def _blocks(settings: Mapping[float, Setting]) -> list[int]:
    return block_numbers(next(iter(settings.values())).runs[0])


def _first_head(kind: Kind, block: int) -> str:
    return f"{title(kind, block)}, head 1"
