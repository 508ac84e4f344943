"""Replay of a finished run into a sink."""

from collections.abc import Callable
from pathlib import Path

import xarray as xr

from rankscope import store


def replay(run: xr.Dataset | str | Path, *sinks: Callable[[xr.Dataset], object]) -> None:
    """Let sinks see every snapshot of a run, as they would have while it was trained."""
    run = run if isinstance(run, xr.Dataset) else store.open(run)
    for row in range(run.sizes["step"]):
        for sink in sinks:
            sink(run.isel(step=slice(row + 1)))
