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

    The head is the first of the middle block, at the default initial scale, of the first seed that
    did not collapse. The paper shows K-Q alone and does not name the head. Each spectrum is divided
    by its largest value. Dashed: the product at the start, which has at most as many values as a
    head is wide. Green: its change since then, darker later. The paper says that the change has low
    rank, and that its rank grows gradually.
    """
    setting, ds = _first_default(runs)
    block = block_numbers(ds)[(len(block_numbers(ds)) - 1) // 2]
    heads = {_first_head(kind, block): head_spectra(ds, kind, block) for kind in KINDS}
    return _headed(normalised_spectra(heads), setting, f"seed {ds.attrs['seed']}")


def figure_2(runs: Runs) -> Figure:
    """Largest singular values of the change of both products, for three initial scales.

    K-Q is above and V-O below. The head is the first of the second block, of the first seed that
    did not collapse; the paper takes a random head of the second layer. Scale 1 is the default.
    Every panel has its own axes. A run that stopped once its training loss had settled is shorter.
    The paper says that values grow one after another, more clearly at smaller scales.
    """
    settings = settings_by_scale(runs)
    largest_first = list(settings.values())[::-1]
    shown = [largest_first[i] for i in evenly(len(settings), SHOWN_SCALES)]
    block = _blocks(settings)[:2][-1]
    heads = {
        f"{_name(setting)}\n{_first_head(kind, block)}": leading(counted(setting)[0], kind, block)
        for kind in KINDS
        for setting in shown
    }
    return leading_values(heads, columns=len(shown))


def _name(setting: Setting) -> str:
    return f"{setting.title} (collapsed)" if all_collapsed(setting) else setting.title


def figure_4(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change at the end of training by initial scale, for every block.

    Points are means over the heads of all seeds, bars one standard deviation. Hollow points are
    runs that collapsed. Runs that stopped once their training loss had settled are read there. The
    paper shows K-Q at layers 1, 3 and 5, without saying whether it counts from 0, and announces
    V-O. We count blocks from 1. The paper says that the rank is lower at smaller scales.
    """
    settings = settings_by_scale(runs)
    if len(settings) < LEAST_SCALES:
        raise TooFewRuns(
            f"this figure needs runs of {LEAST_SCALES} initial scales; the results have "
            f"{', '.join(f'{init_scale:g}' for init_scale in settings)}"
        )
    ends = {init_scale: final_ranks(setting, kind) for init_scale, setting in settings.items()}
    blocks = {
        title(kind, block): {init_scale: ranks[i] for init_scale, ranks in ends.items()}
        for i, block in enumerate(_blocks(settings))
    }
    hollow = {init_scale for init_scale in settings if all_collapsed(settings[init_scale])}
    return stable_ranks_by_scale(blocks, hollow=hollow)


def figure_5(runs: Runs, *, kind: Kind) -> Figure:
    """Singular values of the products at the start and of their change at the end, by block.

    Lines are means over heads and bands one standard deviation, at the default initial scale, for
    the first seed that did not collapse. The spectra are not divided by their largest value. The
    paper shows K-Q of random heads in some layers and announces V-O. It says that the change has
    extremely low rank compared with the start.
    """
    setting, ds = _first_default(runs)
    figure = change_against_start(heads_of_blocks(ds, kind))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def spectra_in_training(runs: Runs) -> Figure:
    """Normalised spectra of products at the start and of their change in training, three blocks.

    K-Q is above and V-O below: the first head of each block, at the default initial scale, for the
    first seed that did not collapse. The paper does not name its heads and layers. Lines are as in
    figure 1. The paper says that the change has low rank, which grows gradually.
    """
    setting, ds = _first_default(runs)
    numbers = block_numbers(ds)
    blocks = [numbers[i] for i in evenly(len(numbers), SHOWN_BLOCKS)]
    heads = {_first_head(k, block): head_spectra(ds, k, block) for k in KINDS for block in blocks}
    figure = normalised_spectra(heads, columns=len(blocks))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def ranks_in_training(runs: Runs) -> Figure:
    """Stable rank of the change of K-Q and of V-O over training, for every block.

    Lines are means over the heads of all seeds and bands one standard deviation, at the default
    initial scale. Time is logarithmic, since the change has no rank at step 0. Claim B7 is about
    the time between the dotted line at epoch 1 and the dot, where the training loss of all seeds is
    below 1e-3; without a dot it is about the time until the end. The paper says that the stable
    rank grows gradually.
    """
    setting = default_setting(runs)
    lines = {shown: courses(setting, kind) for kind, shown in KINDS.items()}
    blocks = {
        f"block {block}": {name: line[i] for name, line in lines.items()}
        for i, block in enumerate(block_numbers(setting.runs[0]))
    }
    looks = {name: Looks(colour) for name, colour in KIND_COLOURS.items()}
    figure = _over_time(blocks, looks, setting.runs[0])
    return _headed(figure, setting, f"heads of {number_of_seeds(len(counted(setting)))}")


def ranks_by_scale(runs: Runs, *, kind: Kind) -> Figure:
    """Stable rank of the change over training by initial scale, for every block (not in the paper).

    Lines are means over the heads of all seeds that did not collapse, bands one standard deviation.
    Claim B7 is about the time between the vertical line at epoch 1 and the dot, where the training
    loss of all seeds is below 1e-3; without a dot it is about the time until the end. Dotted lines
    are scales at which every seed collapsed.
    """
    settings = settings_by_scale(runs)
    lines = {label(setting): courses(setting, kind) for setting in settings.values()}
    looks = {
        label(setting): Looks(colour, ":" if all_collapsed(setting) else "-")
        for setting, colour in zip(settings.values(), shades(len(settings)), strict=True)
    }
    blocks = {
        title(kind, block): {name: line[i] for name, line in lines.items()}
        for i, block in enumerate(_blocks(settings))
    }
    return _over_time(blocks, looks, next(iter(settings.values())).runs[0])


def ranks_by_variant(runs: Runs) -> Figure:
    """Stable rank of the change over training for variants of the network (not in the paper).

    Columns are networks of other sizes, and one that learns from augmented images. K-Q is above and
    V-O below, at the default initial scale. Each line is the mean over the heads of one block, in
    all seeds; the first block is darkest. Section 5 of the paper says that models of different
    sizes show similar trends.
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
    """Return the default scale, and its first seed that did not collapse, or the first of all."""
    setting = default_setting(runs)
    return setting, counted(setting)[0]


def _headed(figure: Figure, setting: Setting, seeds: str) -> Figure:
    """Return the figure with a heading that names its runs and those that collapsed."""
    figure.suptitle(f"initial {label(setting)}, {seeds}", fontsize="medium")
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
