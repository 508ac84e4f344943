"""Claim N1: two norms tell when a head leaves the linearised regime: the lazy-to-rich clock."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.tally import Tally, all_met
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.boix2023.claims.heads import share_of_all
from rankscope.lab.papers.boix2023.runs import CHANGE
from rankscope.lab.papers.findings.runs import seed_runs
from rankscope.lab.tasks.head_changes import number_name
from rankscope.lab.training.outcome import diverged

EXPERIMENT = "findings/clock"
BAND = (0.1, 10.0)
SHARE = 0.8  # of the heads of every scale
SCALES = (1.0, 0.3, 0.1, 0.03)


class Courses(NamedTuple):
    """Two courses of every head, at the snapshots after the start.

    heads: names of their K-Q products. ratio: bilinear over linearised norm of the change.
    rank: stable rank of the change.
    """

    heads: list[str]
    steps: Float[np.ndarray, " step"]
    ratio: Float[np.ndarray, "step head"]
    rank: Float[np.ndarray, "step head"]


def courses(ds: xr.Dataset) -> Courses:
    """Read ratio and stable rank of the change of each head's K-Q product.

    The stable rank is the square of the whole change's norm over that of its largest singular
    value.
    """
    products = ds[[CHANGE]].isel(product=np.flatnonzero(ds["product_kind"].to_numpy() == "kq"))
    after = np.flatnonzero(ds["step"].to_numpy() > 0)
    largest = products[CHANGE].isel(k=0).transpose("step", "product").to_numpy()[after]
    heads = [str(name) for name in products["product"].to_numpy()]
    linearised, bilinear, change = (
        np.stack([ds[number_name(part, i)].to_numpy()[after] for i in range(len(heads))], axis=1)
        for part in ("linearised", "bilinear", "change")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, rank = bilinear / linearised, (change / largest.astype(np.float64)) ** 2
    return Courses(heads, ds["step"].to_numpy()[after], ratio, rank)


def half_fall(rank: Float[np.ndarray, " step"]) -> int | None:
    """Position of the first snapshot at which half of the fall of a stable rank is done.

    The fall goes from the maximum before the minimum to the minimum. None if a value is missing, or
    if it never falls: then the first value is the lowest.
    """
    if not len(rank) or not np.isfinite(rank).all():
        return None
    lowest = int(rank.argmin())
    if lowest == 0:
        return None
    highest = int(rank[:lowest].argmax())
    halfway = np.flatnonzero(rank[highest:] <= (rank[highest] + rank[lowest]) / 2)
    return highest + int(halfway[0])


class Moments(NamedTuple):
    """Step and ratio of each head when half of its fall is done; NaN where it never falls.

    falls: the fall of the stable rank over the maximum before it.
    """

    heads: list[str]
    steps: Float[np.ndarray, " head"]
    ratios: Float[np.ndarray, " head"]
    falls: Float[np.ndarray, " head"]

    @property
    def tally(self) -> Tally:
        """Heads whose ratio lies in the band; those that never fall cannot tell."""
        low, high = BAND
        falls = np.isfinite(self.ratios)
        outside = falls & ~((self.ratios >= low) & (self.ratios <= high))
        names = np.array(self.heads, dtype=object)
        return Tally(tuple(names[falls]), tuple(names[outside]), tuple(names[~falls]))

    def cells(self) -> dict[str, Cell]:
        """Return the evidence of one run."""
        low, high = BAND
        counted = self.ratios[np.isfinite(self.ratios)]
        steps = self.steps[np.isfinite(self.steps)]
        return {
            "heads": len(self.heads),
            "fall": len(counted),
            "in the band": int(((counted >= low) & (counted <= high)).sum()),
            "median fall": float(np.nanmedian(self.falls)) if len(counted) else math.nan,
            "median step": float(np.median(steps)) if len(steps) else math.nan,
            "median ratio": float(np.median(counted)) if len(counted) else math.nan,
            "lowest ratio": float(counted.min()) if len(counted) else math.nan,
            "highest ratio": float(counted.max()) if len(counted) else math.nan,
        }


def moments(ds: xr.Dataset) -> Moments:
    """Return the moment of every head of a run."""
    heads, steps, ratio, rank = courses(ds)
    places = [half_fall(rank[:, head]) for head in range(len(heads))]
    none = math.nan
    return Moments(
        heads,
        np.array([none if place is None else steps[place] for place in places], dtype=np.float64),
        np.array([none if p is None else ratio[p, head] for head, p in enumerate(places)]),
        np.array([none if p is None else _fall(rank[:, head]) for head, p in enumerate(places)]),
    )


def _fall(rank: Float[np.ndarray, " step"]) -> float:
    lowest = int(rank.argmin())
    return 1 - float(rank[lowest] / rank[:lowest].max())


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if at every scale the ratio lies in the band in 80% of the heads.

    The ratio is that of the bilinear to the linearised norm, at the first snapshot at which half of
    the fall of the stable rank of the change is done; the band is 0.1 to 10. A head whose
    stable rank never falls has no such snapshot: it may count either way. A run that diverged
    cannot tell, nor can a seed without all four scales.
    """
    by_scale = runs.by("scale")
    for seed in runs.seeds:
        at_scales = {scale: seeds[seed] for scale, seeds in by_scale.items()}
        yield _measure_seed(at_scales, seed).at(next(iter(runs)), seed)


def _measure_seed(at_scales: Mapping[float, xr.Dataset], seed: int) -> Measured:
    remarks = [
        f"seed {seed} at scale {scale:g}: {reason}"
        for scale, ds in at_scales.items()
        if (reason := diverged(ds))
    ]
    if lacking := set(SCALES) - set(at_scales):
        remarks.append(f"seed {seed} lacks scale {', '.join(f'{s:g}' for s in sorted(lacking))}")
    rows, tallies = list[Mapping[str, Cell]](), dict[str, Tally]()
    shares, outcomes = list[float](), list[bool | None]()
    for scale, ds in sorted(at_scales.items(), reverse=True):
        at_moment = moments(ds)
        rows.append({"scale": f"{scale:g}", **at_moment.cells()})
        tallies[f"scale {scale:g}"] = at_moment.tally
        share, met = share_of_all(at_moment.tally, SHARE)
        shares.append(0.0 if share is None else share)
        outcomes.append(met)
    measured = Measured(min(shares), all_met(outcomes), tuple(rows), tallies)
    if not remarks:
        return measured
    return Measured(rows=measured.rows, remarks=tuple(remarks))


def clock_tables(runs: Runs, archive: Path) -> list[Table]:
    """Return the moments of every run that has no verdict, in the language model."""
    columns = ("seed", *Moments([], *np.empty((3, 0))).cells())
    rows = [(run.seed, *moments(run.ds).cells().values()) for run in seed_runs(runs)]
    return [Table(columns, tuple(rows), "Transformer language model, an observation")]


N1 = Rule(
    claim="N1",
    sentence=(
        "lazy-to-rich clock: a head's change falls in rank when its bilinear part rivals its "
        "linearised part"
    ),
    quantity=(
        f"share of heads, at the scale with the smallest, whose ratio bilinear / linearised is "
        f"{BAND[0]:g} to {BAND[1]:g} when half of the fall of the stable rank is done"
    ),
    bound=f">= {SHARE:g}",
    measure=measure,
    needs=runs_of("vit", experiment=EXPERIMENT),
    table="K-Q of all heads: where half of the fall is done, and the ratio there",
    changed=True,
    ours=True,
)
