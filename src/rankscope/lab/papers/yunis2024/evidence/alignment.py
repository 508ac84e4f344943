"""Y3, Y3b, Y5, Y10, Y11: alignment of neighbouring matrices."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import Tally
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.alignment import AT_CHANCE, weakness
from rankscope.lab.papers.yunis2024.claims.decay import final_relative_alignment
from rankscope.lab.papers.yunis2024.claims.filters import centre_and_others
from rankscope.lab.papers.yunis2024.claims.peaks import has_fallen
from rankscope.lab.papers.yunis2024.evidence.runs import (
    at_base_decay,
    base_run,
    by_column,
    decay_columns,
    sweeps_of,
)
from rankscope.lab.papers.yunis2024.runs import (
    BASE,
    neighbours,
    overlaps,
    relative_alignment,
)
from rankscope.lab.reporting.evidence import Row, out_of

RANDOM_PAIRS = 200_000
DIRECTIONS = 10  # over which alignment is averaged


def at_chance(runs: Runs) -> Table:
    """Pairs at chance at step 0, and pairs never above 0.5, at the base decay."""
    tallies = {place: weakness(ds) for place, ds in at_base_decay(runs).items()}
    rows: list[Row] = [
        (
            *place,
            out_of(met(parts.at_chance), len(parts.at_chance.counted)),
            parts.at_chance.share,
            out_of(met(parts.weak), len(parts.weak.counted)),
        )
        for place, parts in tallies.items()
    ]
    count = sum(met(parts.at_chance) for parts in tallies.values())
    total = sum(len(parts.at_chance.counted) for parts in tallies.values())
    rows.append(("together", None, out_of(count, total), count / total, None))
    rows.append(("random directions", None, None, random_share(), None))
    columns = ("network", "seed", "at chance at step 0", "share", "never above 0.5")
    return Table(columns, tuple(rows), "a(0) / background within 0.75-1.25; a(t) <= 0.5")


def met(tally: Tally) -> int:
    """Return how many names meet the bound."""
    return len(tally.counted) - len(tally.exceptions)


def random_share() -> float:
    """Return the share of pairs of random directions at chance; their overlaps are half-normal."""
    overlaps = np.abs(np.random.default_rng(0).standard_normal((RANDOM_PAIRS, DIRECTIONS)))
    ratio = overlaps.mean(1) / np.sqrt(2 / np.pi)
    return float(np.mean((ratio >= AT_CHANCE[0]) & (ratio <= AT_CHANCE[1])))


def lm_peaks_by_kind(runs: Runs) -> Table:
    """Transformer: pairs that peak in the first third of steps and fall, by kind."""
    ds = base_run(runs, "lm")
    course, falls = relative_alignment(ds), peaks_by_steps(ds)
    kinds = course["pair_kind"].to_numpy()
    rows: list[Row] = []
    groups = {"all": kinds != "", "not qk": kinds != "qk", **_by_kind(kinds)}
    for name, in_group in groups.items():
        median = course[:, in_group].median("pair")
        peak = int(median.argmax("step"))
        count = out_of(int(falls[in_group].sum()), int(in_group.sum()))
        ends = float(median[peak]), int(median["step"][peak]), float(median[-1])
        rows.append((name, count, *ends))
    columns = ("kind", "peak early and fall", "highest median", "at step", "at the end")
    return Table(columns, tuple(rows), f"a / background at decay {BASE['lm']:g}")


def peaks_by_steps(ds: xr.Dataset) -> xr.DataArray:
    """(pair): whether it is highest in the first third of steps and ends below 80% of that."""
    course = relative_alignment(ds)
    early = course["step"][course.argmax("step")] <= course["step"][-1] / 3
    return early & has_fallen(course)


def _by_kind(kinds: np.ndarray) -> dict[str, np.ndarray]:
    return {str(kind): kinds == kind for kind in dict.fromkeys(kinds)}


def shown_pairs(runs: Runs) -> Table:
    """Final alignment of the pairs in figure 5, by ascending decay."""
    rows: list[Row] = []
    for network in BASE:
        sweeps = sweeps_of(runs, network)
        for seed, sweep in sweeps.by_seed.items():
            pair = str(sweep[0.0].attrs["shown_pair"])
            finals = {d: final_relative_alignment(ds).sel(pair=pair) for d, ds in sweep.items()}
            rows.append((network, seed, pair, *by_column(sweeps.decays, finals, float)))
    columns = ("network", "seed", "pair", "none", "second", "third", "largest")
    return Table(columns, tuple(rows), "a / background by decay")


def trends(runs: Runs) -> Table:
    """Spearman(decay, final alignment), median over pairs: raw, and over the background."""
    rows: list[Row] = []
    for network in BASE:
        for seed, sweep in sweeps_of(runs, network).by_seed.items():
            raw, relative = (
                median_trend({decay: read(ds) for decay, ds in sweep.items()})
                for read in (final_alignment, final_relative_alignment)
            )
            rows.append((network, seed, raw, relative))
    columns = ("network", "seed", "raw a", "a / background")
    return Table(columns, tuple(rows), "median over pairs of Spearman(decay, alignment at the end)")


def final_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(pair): raw a at the end."""
    end = neighbours(overlaps(ds.isel(step=[-1])))
    alignment: xr.DataArray = end.rankscope.mean_alignment().isel(step=0, drop=True)
    return alignment


def median_trend(by_decay: Mapping[float, xr.DataArray]) -> float:
    """Median over pairs of Spearman's correlation of decay with a value; NaN pairs left out."""
    values = np.stack([values.to_numpy() for values in by_decay.values()])
    return float(np.nanmedian(rank_correlation(np.array([*by_decay]), values)))


def lm_overlaps(runs: Runs) -> Table:
    """Transformer: overlaps of single directions of q-k, and of the first ten inside the MLP."""

    def overlap(ds: xr.Dataset, kind: str, *directions: int) -> xr.DataArray:
        end = ds["alignment"].isel(step=-1)[ds["pair_kind"].to_numpy() == kind]
        return end.sel(i=list(directions)).mean("i")

    return sweeps_of(runs, "lm").table(
        "overlap A_ii at the end",
        {
            "q-k, first two, median": lambda ds: float(overlap(ds, "qk", 1, 2).median()),
            "q-k, tenth, median": lambda ds: float(overlap(ds, "qk", 10).median()),
            "inside the MLP, first ten, median": lambda ds: float(
                overlap(ds, "w1-w2", *range(1, 11)).median()
            ),
        },
    )


def lm_kinds_by_decay(runs: Runs) -> Table:
    """Transformer: median final alignment of each kind of pair, by decay."""
    lm = sweeps_of(runs, "lm")
    finals = {decay: final_relative_alignment(ds) for decay, ds in lm.first.items()}
    kinds = base_run(runs, "lm")["pair_kind"].to_numpy()
    rows: list[Row] = []
    for kind, in_kind in _by_kind(kinds).items():
        medians = {decay: float(final[in_kind].median()) for decay, final in finals.items()}
        rows.append((f"{kind} ({in_kind.sum()})", *by_column(lm.decays, medians, float)))
    columns = ("kind (pairs)", *decay_columns(lm.decays))
    return Table(columns, tuple(rows), "median a / background at the end")


def centres(runs: Runs) -> Table:
    """VGG and UNet: pairs whose centre tap is above the mean of the others, raw and normalised."""

    def above(ds: xr.Dataset, variable: str) -> str:
        centre, others = centre_and_others(ds, variable)
        return out_of(int((centre > others).sum()), centre.size)

    rows = tuple(
        (*place, above(ds, "alignment"), above(ds, "alignment_normalized"))
        for place, ds in at_base_decay(runs, "vgg", "unet").items()
    )
    return Table(("network", "seed", "raw", "unit length"), rows, "centre above the other taps")
