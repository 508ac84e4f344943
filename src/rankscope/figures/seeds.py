"""Runs that differ only by their seed: values over seeds, and their mean."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Int

Read = Callable[[xr.Dataset], xr.DataArray]


class Setting(NamedTuple):
    """Runs of one setting with several seeds.

    collapsed: for each run the reason why it is left out of trends, "" for none; () if no run is.
    """

    title: str
    runs: tuple[xr.Dataset, ...]
    collapsed: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The title, the number of seeds, and which runs have collapsed; means include them."""
        reasons = [reason for reason in self.collapsed if reason]
        seeds = number_of_seeds(len(self.runs))
        if not reasons:
            return f"{self.title}, {seeds}"
        if len(reasons) == len(self.runs):
            return f"{self.title}, {seeds}, collapsed: {reasons[0]}"
        share = f"{len(reasons)} of {seeds}"
        return f"{self.title}, {share} collapsed, which the mean includes: {reasons[0]}"


def number_of_seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def steps_of(settings: Sequence[Setting], read: Read | None = None) -> Int[np.ndarray, " step"]:
    """Return the steps at which any run has a snapshot; a run that diverged has fewer.

    read: only steps at which it returns a value of some run; archived runs have spectra at some.
    """
    runs = [ds for setting in settings for ds in setting.runs]
    read_runs = runs if read is None else [read(ds).dropna("step", how="all") for ds in runs]
    return np.unique(np.concatenate([values["step"].to_numpy() for values in read_runs]))


def over_seeds(
    setting: Setting, read: Read, steps: Int[np.ndarray, " step"] | None = None
) -> xr.DataArray:
    """Return `read` of each run, over seed and then its own dimensions.

    steps: steps to select, with NaN where a run has no snapshot. Infinite values become NaN.
    """
    arrays = [read(ds).reset_coords(drop=True) for ds in setting.runs]
    if steps is not None:
        arrays = [array.reindex(step=steps).transpose("step", ...) for array in arrays]
    by_seed = xr.concat(arrays, "seed", join="override", coords="minimal", compat="override")
    return by_seed.where(np.isfinite(by_seed))


def average(
    setting: Setting, read: Read, steps: Int[np.ndarray, " step"] | None = None
) -> xr.DataArray:
    """Return the mean over the seeds that have a value."""
    return over_seeds(setting, read, steps).mean("seed")
