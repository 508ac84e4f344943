"""Matrices or pairs of one run that meet a bound, those that do not, and those that cannot tell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

NAMED = 6  # exceptions that a table names; the others are counted


@dataclass(frozen=True)
class Tally:
    """How many of `counted` there are apart from `exceptions`, which are some of them."""

    counted: tuple[str, ...]
    exceptions: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of those counted, the part that meets the bound; NaN if none is counted."""
        count = len(self.counted)
        return (count - len(self.exceptions)) / count if count else math.nan

    def at_least(self, share: float) -> bool | None:
        """Whether so large a part meets the bound; None if none is counted."""
        return self.share >= share if self.counted else None

    def __str__(self) -> str:
        """ "7 of 53: conv1, conv2, ..."."""
        if not self.exceptions:
            return f"none of {len(self.counted)}"
        more = len(self.exceptions) - NAMED
        named = ", ".join(self.exceptions[:NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{len(self.exceptions)} of {len(self.counted)}: {named}"


def tally(met: xr.DataArray, *, measured: xr.DataArray) -> Tally:
    """Both over matrices or over pairs; one whose `measured` is NaN is not counted."""
    (dim,) = met.dims
    names = met[dim].to_numpy().astype(object)
    counted, unmet = ~np.isnan(measured.to_numpy()), ~met.to_numpy()
    return Tally(tuple(names[counted]), tuple(names[counted & unmet]))


def all_met(parts: Iterable[bool | None]) -> bool | None:
    """False if one part of a rule is not met, else None if one cannot be told, else True."""
    known = list(parts)
    if any(part is not None and not part for part in known):
        return False
    return None if None in known else True
