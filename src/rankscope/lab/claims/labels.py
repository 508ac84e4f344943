"""Claim Y8 of yunis2024: true labels against random ones (figure 7)."""

import math

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import nothing_to_judge
from rankscope.lab.claims.tally import all_met
from rankscope.lab.experiment import Results
from rankscope.lab.reading import collapsed, neighbours, overlaps, whole
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

TRUE, RANDOM = "mlp/true-labels", "mlp/random-labels"
LOWER = 0.05
PERSISTS = 0.8
FADES = 0.6
SENTENCE = (
    "true labels give lower rank in the middle layers than random labels, and their alignment "
    "persists while random labels' fades"
)
BOUND = f">= {LOWER:g}; a(end) / max a >= {PERSISTS:g} (true), <= {FADES:g} (random)"


def true_labels_give_lower_rank(results: Results) -> Verdict:
    """Y8. True labels give lower rank in the middle layers, and their alignment persists.

    Yes: at the end the middle layers' NER is lower for true than for random labels by >= 0.05, on
    the median over these layers; and a(end) / max a >= 0.8 for true, <= 0.6 for random labels, on
    the median over pairs that join middle layers. Middle are all matrices but the first and the
    last. A collapsed run cannot tell.
    """
    if TRUE not in results or RANDOM not in results:
        return nothing_to_judge("Y8", SENTENCE, (TRUE, RANDOM), BOUND)
    outcomes: dict[int, Outcome] = {}
    rows: list[tuple[Cell, ...]] = []
    evidence: list[str] = []
    for seed in results[TRUE]:
        true, random = results[TRUE][seed], results[RANDOM][seed]
        reasons = {TRUE: collapsed(true), RANDOM: collapsed(random)}
        evidence += [f"{run}, seed {seed} collapsed: {why}" for run, why in reasons.items() if why]
        outcome, row = _compare(true, random)
        outcomes[seed] = (None, None) if any(reasons.values()) else outcome
        rows.append((seed, *row))
    columns = ("seed", "median lower by", "layers", "a kept, true", "a kept, random")
    return judge(
        "Y8",
        SENTENCE,
        {"mlp": outcomes},
        bound=BOUND,
        quantity="NER of random labels less that of true labels, middle layers",
        evidence=evidence,
        tables=[Table(columns, tuple(rows), "true against random labels")],
    )


def _compare(true: xr.Dataset, random: xr.Dataset) -> tuple[Outcome, tuple[Cell, ...]]:
    lower = _middle_ranks(random) - _middle_ranks(true)
    median = float(lower.median()) if lower.size else math.nan
    kept = alignment_kept(true), alignment_kept(random)
    parts = [median >= LOWER, kept[0] >= PERSISTS, kept[1] <= FADES]
    known = zip(parts, (median, *kept), strict=True)
    met = all_met(None if math.isnan(value) else part for part, value in known)
    layers = (f"{name} {by:.3g}" for name, by in lower.to_series().items())
    return (median, met), (median, ", ".join(layers), *kept)


def middle(ds: xr.Dataset) -> xr.Dataset:
    """The spectra of whole matrices but the first and the last."""
    return whole(ds[["singular_values"]]).isel(matrix=slice(1, -1))


def _middle_ranks(ds: xr.Dataset) -> xr.DataArray:
    layers = middle(ds).isel(step=[-1])
    if not layers.sizes["matrix"]:
        return xr.DataArray([], dims="matrix", coords={"matrix": []})
    ranks: xr.DataArray = layers.rankscope.normalized_effective_rank().isel(step=0, drop=True)
    return ranks


def alignment_kept(ds: xr.Dataset) -> float:
    """a(end) / max a, its median over pairs that join middle layers; NaN if there is none."""
    near, inner = neighbours(overlaps(ds)), middle(ds)["matrix"].to_numpy()
    joins = np.isin(near["earlier"].to_numpy(), inner) & np.isin(near["later"].to_numpy(), inner)
    a = near.isel(pair=np.flatnonzero(joins)).rankscope.mean_alignment()
    return float((a.isel(step=-1) / a.max("step")).median()) if joins.any() else math.nan
