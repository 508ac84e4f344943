"""Stored runs to matplotlib figures, one function per kind of figure."""

from rankscope.figures.activation import activation_errors
from rankscope.figures.decay import ends_by_decay
from rankscope.figures.full_head import singular_value_rises
from rankscope.figures.grokking import grokking_by_decay
from rankscope.figures.memorization import labels_compared
from rankscope.figures.networks import (
    alignment_of_networks,
    ranks_of_networks,
    spectra_of_networks,
)
from rankscope.figures.perturbation import perturbations
from rankscope.figures.products import change_against_start, leading_values, normalised_spectra
from rankscope.figures.samples import sample_sheets
from rankscope.figures.seeds import Setting
from rankscope.figures.stable_ranks import (
    stable_ranks_by_block,
    stable_ranks_by_scale,
    stable_ranks_over_time,
)
from rankscope.figures.staircase import flow_and_staircase
from rankscope.figures.style import save
from rankscope.figures.sweeps import alignment_by_decay, spectra_by_decay
from rankscope.figures.toy import entries_by_alpha, loss_by_alpha, toy_attention
from rankscope.figures.training import (
    alignment_over_time,
    effective_rank_by_depth,
    mean_alignment_by_pair,
    overview,
    singular_values_over_time,
    whole_matrices,
)
from rankscope.figures.truncated import losses_by_decay

__all__ = [
    "Setting",
    "activation_errors",
    "alignment_by_decay",
    "alignment_of_networks",
    "alignment_over_time",
    "change_against_start",
    "effective_rank_by_depth",
    "ends_by_decay",
    "entries_by_alpha",
    "flow_and_staircase",
    "grokking_by_decay",
    "labels_compared",
    "leading_values",
    "loss_by_alpha",
    "losses_by_decay",
    "mean_alignment_by_pair",
    "normalised_spectra",
    "overview",
    "perturbations",
    "ranks_of_networks",
    "sample_sheets",
    "save",
    "singular_value_rises",
    "singular_values_over_time",
    "spectra_by_decay",
    "spectra_of_networks",
    "stable_ranks_by_block",
    "stable_ranks_by_scale",
    "stable_ranks_over_time",
    "toy_attention",
    "whole_matrices",
]
