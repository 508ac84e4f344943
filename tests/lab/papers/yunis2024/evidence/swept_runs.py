"""Runs at several decays, made by hand."""

from collections.abc import Mapping

import xarray as xr

from lab.papers.yunis2024.closed_form_runs import decay_key
from rankscope.lab.judging.selected_runs import Runs


def swept(network: str, by_decay: Mapping[float, xr.Dataset | Mapping[int, xr.Dataset]]) -> Runs:
    """Return runs of one network; a Dataset alone is that of seed 0."""
    return Runs(
        {
            decay_key(network, decay): {0: seeds} if isinstance(seeds, xr.Dataset) else seeds
            for decay, seeds in by_decay.items()
        }
    )


def together(*parts: Runs) -> Runs:
    """Return the runs of several networks."""
    return Runs({key: part[key] for part in parts for key in part})
