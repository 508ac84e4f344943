"""Singular values and leading singular directions of many matrices at once."""

from rankscope.spectra.carried import Carried
from rankscope.spectra.decomposition import decompose, singular_values, svd
from rankscope.spectra.solvers import Svd

__all__ = ["Carried", "Svd", "decompose", "singular_values", "svd"]
