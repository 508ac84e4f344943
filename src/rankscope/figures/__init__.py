"""Figures of any Tracker run: one function per kind of figure, stored run in, figure out."""

from rankscope.figures.comparison import compare_matrices, compare_runs
from rankscope.figures.growth import change_ranks_over_steps
from rankscope.figures.heads import head_ranks_over_time, product_spectra_over_time
from rankscope.figures.measures import (
    activations_over_time,
    attention_over_time,
    gradients_over_time,
    rotation_over_time,
    tails_over_time,
    updates_over_time,
)
from rankscope.figures.seeds import Setting
from rankscope.figures.snapshot import spectra_by_matrix
from rankscope.figures.style import save
from rankscope.figures.training import (
    alignment_over_time,
    effective_rank_by_depth,
    mean_alignment_by_pair,
    overview,
    singular_values_over_time,
    whole_matrices,
)

__all__ = [
    "Setting",
    "activations_over_time",
    "alignment_over_time",
    "attention_over_time",
    "change_ranks_over_steps",
    "compare_matrices",
    "compare_runs",
    "effective_rank_by_depth",
    "gradients_over_time",
    "head_ranks_over_time",
    "mean_alignment_by_pair",
    "overview",
    "product_spectra_over_time",
    "rotation_over_time",
    "save",
    "singular_values_over_time",
    "spectra_by_matrix",
    "tails_over_time",
    "updates_over_time",
    "whole_matrices",
]
