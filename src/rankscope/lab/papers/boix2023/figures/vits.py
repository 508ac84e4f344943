"""The figures of boix2023 on vision transformers, by number."""

from functools import partial

from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.papers.boix2023.figures.head_cuts import kept_accuracy
from rankscope.lab.papers.boix2023.figures.products import (
    figure_1,
    figure_2,
    figure_5,
    spectra_in_training,
)
from rankscope.lab.papers.boix2023.figures.stable_ranks import (
    figure_4,
    ranks_by_scale,
    ranks_by_variant,
    ranks_in_training,
)

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
    FigureRule("kept-accuracy-cifar100", kept_accuracy, CIFAR100),
    FigureRule("figure-15", spectra_in_training, IMAGENET),
    FigureRule("figure-16", ranks_in_training, IMAGENET),
    FigureRule("figure-1-imagenet", figure_1, IMAGENET),
    FigureRule("stable-rank-kq", partial(ranks_by_scale, kind="kq"), CIFAR10),
    FigureRule("stable-rank-vo", partial(ranks_by_scale, kind="vo"), CIFAR10),
    FigureRule("stable-rank-by-variant", ranks_by_variant, VARIANTS),
)
