"""Runs that differ by their seed only, put together: their mean, and a band from least to most."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Int

Read = Callable[[xr.Dataset], xr.DataArray]


class Setting(NamedTuple):
    """One setting, run with some seeds.

    collapsed: for each run why it takes no part in trends, "" if it does; () for runs that all do.
    """

    title: str
    runs: tuple[xr.Dataset, ...]
    collapsed: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The title, and what a reader has to know of the runs: means have all seeds in them."""
        reasons = [reason for reason in self.collapsed if reason]
        seeds = number_of_seeds(len(self.runs))
        if not reasons:
            return f"{self.title}, {seeds}"
        if len(reasons) == len(self.runs):
            return f"{self.title}, {seeds}, collapsed: {reasons[0]}"
        share = f"{len(reasons)} of {seeds}"
        return f"{self.title}, {share} collapsed, which the mean includes: {reasons[0]}"


def number_of_seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def steps_of(settings: Sequence[Setting]) -> Int[np.ndarray, " step"]:
    """Every step at which some run has a snapshot: a run that diverged has fewer of them."""
    runs = [ds for setting in settings for ds in setting.runs]
    return np.unique(np.concatenate([ds["step"].to_numpy() for ds in runs]))


def over_seeds(
    setting: Setting, read: Read, steps: Int[np.ndarray, " step"] | None = None
) -> xr.DataArray:
    """What `read` finds in each run, over seed and then its own dimensions.

    With `steps`, at these, NaN where a run has no snapshot. What is not finite becomes NaN.
    """
    found = [read(ds).reset_coords(drop=True) for ds in setting.runs]
    if steps is not None:
        found = [values.reindex(step=steps).transpose("step", ...) for values in found]
    together = xr.concat(found, "seed", join="override", coords="minimal", compat="override")
    return together.where(np.isfinite(together))


def average(
    setting: Setting, read: Read, steps: Int[np.ndarray, " step"] | None = None
) -> xr.DataArray:
    """The mean over the seeds that have a value."""
    return over_seeds(setting, read, steps).mean("seed")
