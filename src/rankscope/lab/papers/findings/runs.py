"""Runs as findings read them: one run of one seed at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.running.run_key import RunKey


class SeedRun(NamedTuple):
    """One run of one seed."""

    key: RunKey
    seed: int
    ds: xr.Dataset

    @property
    def title(self) -> str:
        """Title as remarks name it: "grok, decay 1, share 0.3, seed 4"."""
        return f"{self.key.title}, seed {self.seed}"


def seed_runs(runs: Runs) -> Iterator[SeedRun]:
    """Yield every run of every seed, in declared order."""
    for key in runs:
        for seed, ds in runs[key].items():
            yield SeedRun(key, seed, ds)
