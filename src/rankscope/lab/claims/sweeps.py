"""The runs of one network and seed at several decays, without those that collapsed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from rankscope.lab.experiment import Results
from rankscope.lab.reading import base_decay, collapsed, decays

LEAST_DECAYS = 3


@dataclass(frozen=True)
class Sweep:
    """runs: by the paper's decay, ascending. left_out: sentences on those that collapsed.

    base: the decay of figures 1-3, or the nearest there is, whether it collapsed or not.
    """

    network: str
    seed: int
    runs: dict[float, xr.Dataset]
    left_out: tuple[str, ...]
    base: float

    @property
    def enough(self) -> bool:
        """Whether there are 3 decays, the least that show a trend."""
        return len(self.runs) >= LEAST_DECAYS


def by_seed(results: Results, network: str) -> Iterator[Sweep]:
    """One for each seed; every decay that was run takes part."""
    found = decays(results, network)
    for seed in next(iter(found.values()), {}):
        runs = {decay: seeds[seed] for decay, seeds in found.items()}
        reasons = {decay: collapsed(ds) for decay, ds in runs.items()}
        yield Sweep(
            network,
            seed,
            {decay: ds for decay, ds in runs.items() if not reasons[decay]},
            tuple(
                f"{network} at decay {decay:g}, seed {seed} collapsed: {why}"
                for decay, why in reasons.items()
                if why
            ),
            base=base_decay(results, network),
        )


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's, of x (n) with every column of y (n, ...); 0 where a column is constant.

    NaN in, NaN out. Ranks without ties give whole numbers, so that -0.8 is -0.8 to the last digit.
    """
    ranks_x, ranks_y = (rankdata(values, axis=0) - (len(x) + 1) / 2 for values in (x, y))
    together = np.tensordot(ranks_x, ranks_y, axes=(0, 0))
    sizes = np.sqrt(np.square(ranks_x).sum() * np.square(ranks_y).sum(0))
    correlation = together / np.where(sizes > 0, sizes, 1.0)
    return np.where(np.isnan(y).any(0), np.nan, correlation)
