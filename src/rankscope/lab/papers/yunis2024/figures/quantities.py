"""Values of a run that the figures of yunis2024 show."""

import xarray as xr

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.figures.training import select, with_all_directions

NER = "effective rank / min(m, n)"
RELATIVE_ALIGNMENT = "$a$ / background"


def shown_spectrum(ds: xr.Dataset) -> xr.DataArray:
    """(step, k): singular values of the matrix that stands for the network."""
    return select(ds, "matrix", ds.attrs["shown_matrix"])["singular_values"]


def shown_pair(ds: xr.Dataset) -> xr.Dataset:
    """Select the pair that stands for the network."""
    return select(ds, "pair", ds.attrs["shown_pair"])


def shown_diagonal(ds: xr.Dataset) -> xr.DataArray:
    """(step, i): A_ii of the pair that stands for the network, where all are stored."""
    return with_all_directions(shown_pair(ds))["alignment"]


def ranks(ds: xr.Dataset) -> xr.DataArray:
    """(step, matrix): normalised effective rank of whole matrices."""
    ranks: xr.DataArray = ds.rankscope.whole().rankscope.normalized_effective_rank()
    return ranks


def mean_alignment(ds: xr.Dataset, variable: str = "alignment") -> xr.DataArray:
    """(step, pair): the mean a of A_ii over i <= min(10, R), raw or normalised."""
    mean: xr.DataArray = ds.rankscope.mean_alignment(of=variable)
    return mean


def relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a over the pair's background; NaN where there is none."""
    ratio: xr.DataArray = ds.rankscope.relative_alignment()
    return ratio
