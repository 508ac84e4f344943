"""Claim Y8 of yunis2024: true labels against random ones (figure 7)."""

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.tally import all_met
from rankscope.lab.papers.yunis2024.runs import collapse_remark, neighbours, overlaps
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

TRUE, RANDOM = "true", "random"
LOWER = 0.05
PERSISTS = 0.8
FADES = 0.6


def both_labels(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the MLP with true and with random labels."""
    labelled = runs_of("mlp", parameter="labels")(keys)
    return labelled if len(labelled) == 2 else []


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if three parts are met at the end. A collapsed run cannot tell.

    1. The NER of middle layers is lower for true than for random labels by 0.05 or more, on the
       median over these layers.
    2. a(end) / max a >= 0.8 for true labels, on the median over pairs that join middle layers.
    3. a(end) / max a <= 0.6 for random labels.

    Middle layers are all matrices but the first and the last.
    """
    keys = {key.variant["labels"]: key for key in runs}
    for seed in runs.seeds:
        true, random = (runs[keys[labels]][seed] for labels in (TRUE, RANDOM))
        measured = _compare(true, random).at(keys[TRUE], seed)
        for key in runs:
            if reason := collapsed(runs[key][seed]):
                measured = measured.without_outcome(collapse_remark(key, seed, reason))
        yield measured


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
    sentence="true labels give middle layers lower rank than random ones, and lasting alignment",
    quantity="NER of random labels less that of true labels, middle layers",
    bound=f">= {LOWER:g}; a(end) / max a >= {PERSISTS:g} (true), <= {FADES:g} (random)",
    measure=measure,
    needs=both_labels,
    table="true against random labels",
)
