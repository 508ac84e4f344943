"""Claims Y8 and Y8b of yunis2024: true labels against random ones (figure 7)."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.tally import all_met
from rankscope.lab.papers.yunis2024.runs import collapse_remark, neighbours, overlaps
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

TRUE, RANDOM = "true", "random"
HIGHER = 0.01
LASTS = 0.2
LOWER = 0.05
PERSISTS = 0.8
FADES = 0.6


def both_labels(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the MLP with true and with random labels."""
    labelled = runs_of("mlp", parameter="labels")(keys)
    return labelled if len(labelled) == 2 else []


def measure_ranks(runs: Runs) -> Iterator[Measured]:
    """A seed of a middle layer meets the bound if random labels give it higher NER by over 0.01.

    It is read at the end. Middle layers are all matrices but the first and the last, and each is
    judged by itself. A collapsed run cannot tell.
    """
    for pair in _pairs_of_runs(runs):
        true, random = _middle_ranks(pair.true), _middle_ranks(pair.random)
        for number, layer in enumerate(true["matrix"].to_numpy(), 1):
            ranks = [float(ranks.sel(matrix=layer)) for ranks in (true, random)]
            higher = ranks[1] - ranks[0]
            row = {"NER, true": ranks[0], "NER, random": ranks[1]}
            met = None if math.isnan(higher) else higher > HIGHER
            part = f"middle layer {number}"
            yield pair.placed(Measured(higher, met, (row,), part=part))


def measure_alignment(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if true labels keep more of the middle pair's largest alignment.

    a(end) / max a with true labels exceeds that with random labels by 0.2 or more. The middle pair
    joins middle layers; of several, the median is read. A collapsed run cannot tell.
    """
    for pair in _pairs_of_runs(runs):
        true, random = alignment_kept(pair.true), alignment_kept(pair.random)
        row = {"a(end) / max a, true": true, "a(end) / max a, random": random}
        met = None if math.isnan(true - random) else true - random >= LASTS
        yield pair.placed(Measured(true - random, met, (row,)))


class PairOfRuns(NamedTuple):
    """The runs of one seed with true and with random labels, and remarks on those that collapsed.

    key: that of the run with true labels.
    """

    key: RunKey
    seed: int
    true: xr.Dataset
    random: xr.Dataset
    collapses: tuple[str, ...]

    def placed(self, measured: Measured) -> Measured:
        """Return the measurement with its place; it cannot tell if a run collapsed."""
        for remark in self.collapses:
            measured = measured.without_outcome(remark)
        return measured.at(self.key, self.seed)


def _pairs_of_runs(runs: Runs) -> Iterator[PairOfRuns]:
    keys = {key.variant["labels"]: key for key in runs}
    for seed in runs.seeds:
        true, random = (runs[keys[labels]][seed] for labels in (TRUE, RANDOM))
        collapses = tuple(
            collapse_remark(key, seed, reason)
            for key in runs
            if (reason := collapsed(runs[key][seed]))
        )
        yield PairOfRuns(keys[TRUE], seed, true, random, collapses)


def measure_first(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if three parts are met at the end. A collapsed run cannot tell.

    1. The NER of middle layers is lower for true than for random labels by 0.05 or more, on the
       median over these layers.
    2. a(end) / max a >= 0.8 for true labels, on the median over pairs that join middle layers.
    3. a(end) / max a <= 0.6 for random labels.

    Middle layers are all matrices but the first and the last.
    """
    for pair in _pairs_of_runs(runs):
        yield pair.placed(_compare(pair.true, pair.random))


def _compare(true: xr.Dataset, random: xr.Dataset) -> Measured:
    lower = _middle_ranks(random) - _middle_ranks(true)
    median = float(lower.median())
    left_true, left_random = alignment_kept(true), alignment_kept(random)
    bounds = (median >= LOWER, left_true >= PERSISTS, left_random <= FADES)
    known = ~np.isnan([median, left_true, left_random])
    met = all_met(part if known[n] else None for n, part in enumerate(bounds))
    layers = {f"{name} lower by": float(by) for name, by in lower.to_series().items()}
    left = {"a(end) / max a, true": left_true, "a(end) / max a, random": left_random}
    return Measured(median, met, ({"median lower by": median, **layers, **left},))


def middle(ds: xr.Dataset) -> xr.Dataset:
    """Select the spectra of whole matrices but the first and the last."""
    spectra: xr.Dataset = ds[["singular_values"]].rankscope.whole()
    return spectra.isel(matrix=slice(1, -1))


def _middle_ranks(ds: xr.Dataset) -> xr.DataArray:
    ranks: xr.DataArray = middle(ds.isel(step=[-1])).rankscope.normalized_effective_rank()
    return ranks.isel(step=0, drop=True)


def alignment_kept(ds: xr.Dataset) -> float:
    """Median of a(end) / max a over pairs that join middle layers; NaN if there is none."""
    near, inner = neighbours(overlaps(ds)), middle(ds)["matrix"].to_numpy()
    joins = np.isin(near["earlier"].to_numpy(), inner) & np.isin(near["later"].to_numpy(), inner)
    a = near.isel(pair=np.flatnonzero(joins)).rankscope.mean_alignment()
    return float((a.isel(step=-1) / a.max("step")).median()) if joins.any() else math.nan


Y8 = Rule(
    claim="Y8",
    sentence="true labels give middle layers lower rank than random ones",
    quantity="NER with random labels less that with true labels, at the end",
    bound=f"> {HIGHER:g}",
    measure=measure_ranks,
    needs=both_labels,
    table="final NER of middle layers",
    changed=True,
    reason="The first rule folds ranks and alignment into one mark, and asks for a difference in "
    "rank that the paper does not state.",
)
Y8B = Rule(
    claim="Y8b",
    sentence="alignment lasts with true labels and fades with random ones",
    quantity="a(end) / max a of the middle pair with true labels less that with random labels",
    bound=f">= {LASTS:g}",
    measure=measure_alignment,
    needs=both_labels,
    table="what is left of the middle pair's largest alignment",
    changed=True,
    reason="It is a part of the first rule of Y8, which asks for two absolute bounds.",
)
Y8_FIRST = Rule(
    claim="Y8-first",
    headline="Y8",
    sentence="true labels give middle layers lower rank than random ones, and lasting alignment",
    quantity="NER of random labels less that of true labels, middle layers",
    bound=f">= {LOWER:g}; a(end) / max a >= {PERSISTS:g} (true), <= {FADES:g} (random)",
    measure=measure_first,
    needs=both_labels,
    table="true against random labels",
)
