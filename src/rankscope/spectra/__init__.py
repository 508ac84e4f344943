"""Singular values and leading singular directions of many matrices at once."""

from rankscope.spectra.carried import Carried
from rankscope.spectra.decomposition import decompose, singular_values, svd
from rankscope.spectra.leading_part import Leading
from rankscope.spectra.operator import Operator
from rankscope.spectra.solvers import Svd
from rankscope.spectra.truncation import decompose_leading, leading

__all__ = [
    "Carried",
    "Leading",
    "Operator",
    "Svd",
    "decompose",
    "decompose_leading",
    "leading",
    "singular_values",
    "svd",
]
