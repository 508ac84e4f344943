"""The figures of boix2023 on vision transformers by their number, from runs by initial scale.

Each function makes one; its docstring is the caption.
"""

from collections.abc import Mapping
from functools import partial

import xarray as xr
from matplotlib.figure import Figure

from rankscope.figures import (
    Setting,
    change_against_start,
    leading_values,
    normalised_spectra,
    stable_ranks_by_block,
    stable_ranks_by_scale,
    stable_ranks_over_time,
)
from rankscope.figures.seeds import number_of_seeds
from rankscope.figures.stable_ranks import KIND_COLOURS, Course, Looks
from rankscope.figures.style import evenly, shades
from rankscope.lab.experiment import FigureMaker, Results, TooFewRuns
from rankscope.lab.heads import KINDS, SETTLED, Kind, networks, time_unit
from rankscope.lab.network_figures import some
from rankscope.lab.vit_panels import (
    all_collapsed,
    block_numbers,
    counted,
    courses,
    default_runs,
    final_ranks,
    head_spectra,
    heads_of_blocks,
    label,
    leading,
    sweep,
    title,
)

SHOWN_SCALES = 3
SHOWN_BLOCKS = 3
LEAST_SCALES = 2
NEEDED = "a network at some initial scale"
DOT = f"training loss < {SETTLED:g}"


def figure_1(results: Results) -> Figure:
    """Normalised spectra of one head's products at the start, and of their change in training.

    K-Q and V-O of the first head of the middle block (the paper does not say which it shows, and
    has K-Q alone), at the default initial scale, first seed that did not collapse. Each spectrum is
    divided by its largest value. Dashed: the product at the start, which has no more values than a
    head is wide. Green: its change since then, darker the later.
    The paper says: the change has low rank, and its rank grows gradually.
    """
    setting, ds = _first_default(results)
    block = block_numbers(ds)[(len(block_numbers(ds)) - 1) // 2]
    heads = {_first_head(kind, block): head_spectra(ds, kind, block) for kind in KINDS}
    return _headed(normalised_spectra(heads), setting, f"seed {ds.attrs['seed']}")


def figure_2(results: Results) -> Figure:
    """The largest singular values of the change of both products, for three initial scales.

    K-Q above, V-O below; first head of the second block (the paper: a random head of the second
    layer), first seed that did not collapse. Scale 1 is the default. Every panel has axes of its
    own; a run that was stopped when its training loss had settled is shorter. The paper says:
    values grow one after another, the more clearly the smaller the scale.
    """
    found = sweep(results, _network(results))
    largest_first = list(found.values())[::-1]
    shown = [largest_first[i] for i in evenly(len(found), SHOWN_SCALES)]
    runs = {
        setting.title + " (collapsed)" * all_collapsed(setting): counted(setting)[0]
        for setting in shown
    }
    block = _blocks(found)[:2][-1]
    heads = {
        f"{name}\n{_first_head(kind, block)}": leading(ds, kind, block)
        for kind in KINDS
        for name, ds in runs.items()
    }
    return leading_values(heads, columns=len(runs))


def figure_4(results: Results, *, kind: Kind) -> Figure:
    """Stable rank of the change at the end of training by initial scale, for every block.

    Mean and standard deviation over the heads of all seeds. Hollow: runs that collapsed. The paper
    shows K-Q at layers 1, 3 and 5, without saying whether it counts from 0 or 1, and promises V-O;
    here blocks are counted from 1. Runs that were stopped when their training loss had settled
    count as they were then. The paper says: the smaller the scale, the lower the rank.
    """
    found = sweep(results, _network(results))
    if len(found) < LEAST_SCALES:
        raise TooFewRuns(
            f"this figure needs runs of {LEAST_SCALES} initial scales; the results have "
            f"{', '.join(f'{scale:g}' for scale in found)}"
        )
    ends = {scale: final_ranks(setting, kind) for scale, setting in found.items()}
    blocks = {
        title(kind, block): {scale: ranks[i] for scale, ranks in ends.items()}
        for i, block in enumerate(_blocks(found))
    }
    hollow = {scale for scale, setting in found.items() if all_collapsed(setting)}
    return stable_ranks_by_scale(blocks, hollow=hollow)


def figure_5(results: Results, *, kind: Kind) -> Figure:
    """Singular values of the products at the start and of their change at the end, every block.

    Mean and standard deviation over heads at the default initial scale, first seed that did not
    collapse; the paper shows random heads of some layers, K-Q, and promises V-O. Both spectra are
    as they are, not divided by their largest value. The paper says: the change has extremely low
    rank beside the start.
    """
    setting, ds = _first_default(results)
    figure = change_against_start(heads_of_blocks(ds, kind))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def spectra_in_training(results: Results) -> Figure:
    """Normalised spectra of products at the start and of their change in training, three blocks.

    K-Q above, V-O below, first head of each block, at the default initial scale, first seed that
    did not collapse; the paper does not say which heads and layers it shows. Lines as in figure 1.
    The paper says: the change has low rank, which grows gradually.
    """
    setting, ds = _first_default(results)
    every = block_numbers(ds)
    blocks = [every[i] for i in evenly(len(every), SHOWN_BLOCKS)]
    heads = {_first_head(k, block): head_spectra(ds, k, block) for k in KINDS for block in blocks}
    figure = normalised_spectra(heads, columns=len(blocks))
    return _headed(figure, setting, f"seed {ds.attrs['seed']}")


def ranks_in_training(results: Results) -> Figure:
    """Stable rank of the change of K-Q and of V-O over training, for every block.

    Lines are means over the heads of all seeds, bands one standard deviation, at the default
    initial scale. Time is logarithmic, since the change has no rank at step 0. Claim B7 looks at
    what lies between the dotted line at epoch 1 and the dot, where the training loss of all seeds
    is below 1e-3, or the end. The paper says: the stable rank grows gradually.
    """
    setting = default_runs(results, _network(results))
    lines = {shown: courses(setting, kind) for kind, shown in KINDS.items()}
    blocks = {
        f"block {block}": {name: of[i] for name, of in lines.items()}
        for i, block in enumerate(block_numbers(setting.runs[0]))
    }
    looks = {name: Looks(colour) for name, colour in KIND_COLOURS.items()}
    figure = _over_time(blocks, looks, setting.runs[0])
    return _headed(figure, setting, f"heads of {number_of_seeds(len(counted(setting)))}")


def ranks_by_scale(results: Results, *, kind: Kind) -> Figure:
    """Stable rank of the change over training by initial scale, for every block (not in the paper).

    Lines are means over the heads of all seeds that did not collapse, bands one standard deviation.
    Claim B7 looks at what lies between the vertical line at epoch 1 and the dot, where the training
    loss of all seeds is below 1e-3, or the end. Dotted: a scale at which every seed collapsed.
    """
    found = sweep(results, _network(results))
    lines = {label(setting): courses(setting, kind) for setting in found.values()}
    looks = {
        label(setting): Looks(colour, ":" if all_collapsed(setting) else "-")
        for setting, colour in zip(found.values(), shades(len(found)), strict=True)
    }
    blocks = {
        title(kind, block): {name: of[i] for name, of in lines.items()}
        for i, block in enumerate(_blocks(found))
    }
    return _over_time(blocks, looks, next(iter(found.values())).runs[0])


def ranks_by_variant(results: Results) -> Figure:
    """Stable rank of the change over training for variants of the network (not in the paper).

    Columns are networks of other sizes, and one that learns from augmented images, at the default
    initial scale, K-Q above and V-O below. Each line is one block, the mean over the heads of all
    seeds; the first block is darkest. Section 5 of the paper says of different model sizes that
    they show similar trends.
    """
    found = some(networks(results), NEEDED)
    settings = {name: default_runs(results, name) for name in found}
    panels = {
        f"{name}, {shown}": courses(setting, kind)
        for kind, shown in KINDS.items()
        for name, setting in settings.items()
    }
    unit = time_unit(next(iter(settings.values())).runs[0])
    return stable_ranks_by_block(panels, columns=len(settings), unit=unit)


CIFAR10_FIGURES: dict[str, FigureMaker] = {
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-4": partial(figure_4, kind="kq"),
    "figure-4-vo": partial(figure_4, kind="vo"),
    "figure-5": partial(figure_5, kind="kq"),
    "figure-5-vo": partial(figure_5, kind="vo"),
    "figure-11": spectra_in_training,
    "figure-12": ranks_in_training,
    "stable-rank-kq": partial(ranks_by_scale, kind="kq"),
    "stable-rank-vo": partial(ranks_by_scale, kind="vo"),
}
CIFAR100_FIGURES: dict[str, FigureMaker] = {
    "figure-13": spectra_in_training,
    "figure-14": ranks_in_training,
}
IMAGENET_FIGURES: dict[str, FigureMaker] = {
    "figure-1": figure_1,
    "figure-15": spectra_in_training,
    "figure-16": ranks_in_training,
}
VARIANT_FIGURES: dict[str, FigureMaker] = {"stable-rank-by-variant": ranks_by_variant}


def _network(results: Results) -> str:
    """The one network of an experiment that varies its initial scale."""
    return some(networks(results), NEEDED)[0]


def _first_default(results: Results) -> tuple[Setting, xr.Dataset]:
    """The default scale, and its first seed that did not collapse, or the first if all did."""
    setting = default_runs(results, _network(results))
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


def _blocks(found: Mapping[float, Setting]) -> list[int]:
    return block_numbers(next(iter(found.values())).runs[0])


def _first_head(kind: Kind, block: int) -> str:
    return f"{title(kind, block)}, head 1"
