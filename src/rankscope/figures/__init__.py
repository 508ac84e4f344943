"""Stored runs to matplotlib figures, one function per kind of figure."""

from rankscope.figures.activation import activation_errors
from rankscope.figures.full_head import singular_value_rises
from rankscope.figures.perturbation import perturbations
from rankscope.figures.staircase import flow_and_staircase
from rankscope.figures.style import save
from rankscope.figures.toy import entries_by_alpha, loss_by_alpha, toy_attention
from rankscope.figures.training import (
    alignment_over_time,
    effective_rank_by_depth,
    mean_alignment_by_pair,
    overview,
    singular_values_over_time,
    whole_matrices,
)

__all__ = [
    "activation_errors",
    "alignment_over_time",
    "effective_rank_by_depth",
    "entries_by_alpha",
    "flow_and_staircase",
    "loss_by_alpha",
    "mean_alignment_by_pair",
    "overview",
    "perturbations",
    "save",
    "singular_value_rises",
    "singular_values_over_time",
    "toy_attention",
    "whole_matrices",
]
