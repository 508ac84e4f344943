"""Claims Y3, Y3b and Y10 of yunis2024: alignment of neighbouring layers (figure 3).

a is the mean of A_ii over i <= min(10, R), raw as in the paper (Eq. 3). Background is the measured
mean off the diagonal of the same pair at the same time. Pairs cannot tell while a matrix is zero.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.claims.base_runs import Rule, Seen, judge_base_runs
from rankscope.lab.claims.tally import Tally, all_met, count
from rankscope.lab.experiment import Results
from rankscope.lab.reading import neighbours, overlaps
from rankscope.lab.verdict import Verdict

AT_CHANCE = (0.75, 1.25)
AT_CHANCE_SHARE = 0.9
WEAK = 0.5
WEAK_SHARE = 0.9
TOP_SHARE = 0.5
EARLY_SHARE = 0.5
LEFT_OF_PEAK = 0.8
LAYER = re.compile(r"\bblocks\.\d+\.")

WEAKNESS = Rule(
    claim="Y3",
    sentence="neighbouring layers align weakly, not from the start, and in the top ranks only",
    bound=">= 0",
    quantity="how far the worst of three shares of pairs is above its bound (below 0: missed)",
    columns=(
        f"a(0) at chance, >= {AT_CHANCE_SHARE:g}",
        "exceptions",
        f"a(t) weak, >= {WEAK_SHARE:g}",
        "exceptions",
        f"top above, >= {TOP_SHARE:g}",
        "exceptions",
    ),
    title="share of pairs: a(0) / background in 0.75-1.25 (layers that start as copies of one "
    "count once); a(t) <= 0.5 at every snapshot; top ranks above later ones at the end",
)
WEAKNESS_ON_THE_MEDIAN = Rule(
    claim="Y3-median",
    sentence=WEAKNESS.sentence,
    bound=f"{AT_CHANCE[0]:g} to {AT_CHANCE[1]:g}; the other parts as in Y3",
    quantity="median over pairs of a(0) / background",
    columns=(
        "median a(0) / background",
        f"a(t) weak, >= {WEAK_SHARE:g}",
        f"top above, >= {TOP_SHARE:g}",
    ),
    title="a(0) on the median of the pairs; the other parts as in Y3",
    evidence=(
        "a second rule, made before any run was judged: of random directions a(0) / background is "
        "1 +- 0.24, so that only 70% of pairs at chance lie within 0.75-1.25, not the 90% that Y3 "
        "asks for",
    ),
)
EARLY_PEAK = Rule(
    claim="Y3b",
    sentence="alignment of the top ranks peaks early, then diffuses",
    bound=f">= {EARLY_SHARE:g}",
    quantity="share of pairs that peak in the first third and end below 80% of the peak",
    columns=("share", "peak early", "end below 80%", "exceptions"),
    title="a(t) / background: how many pairs peak in the first third, how many end below 80% of it",
)
BEST_KIND = Rule(
    claim="Y10",
    sentence="queries and keys are the best-aligned kind of pair in the Transformer",
    bound="> 1",
    quantity="median a / background of queries and keys over that of the best other kind",
    columns=("queries and keys", "best other", "kinds"),
    title="median a / background at the end by kind of pair",
    networks=("lm",),
)


def alignment_is_weak(results: Results) -> Verdict:
    """Y3. Neighbouring layers align weakly, not from the start, and in the top ranks only.

    Yes, at the base decay, if all of: a(0) / background within 0.75-1.25 for >= 90% of pairs; a(t)
    <= 0.5 at every snapshot for >= 90%; at the end the mean of A_ii over i <= 10 above that over
    50 < i <= 100 in >= half. The rule takes an lm with copied layers apart in the first. We read:
    where every layer starts as a copy of one, each has the same a(0), so a pair counts once, in its
    first layer; their matrices are drawn independently and at chance like others. Only pairs with
    R > 50 take part in the third; where there is none it cannot be told. By chance half of the
    pairs meet the third, and 70% the first: see Y3-median.
    """
    return judge_base_runs(WEAKNESS, results, _see_weakness)


def _see_weakness(ds: xr.Dataset) -> Seen:
    parts = weakness(ds)
    bounds = (AT_CHANCE_SHARE, WEAK_SHARE, TOP_SHARE)
    met = all_met(part.at_least(bound) for part, bound in zip(parts, bounds, strict=True))
    spare = [part.share - b for part, b in zip(parts, bounds, strict=True) if part.counted]
    row = [cell for part in parts for cell in (part.share, str(part))]
    counted = zip(("a(0) at chance", "a(t) weak", "top above"), parts, strict=True)
    return Seen((min(spare, default=None), met), tuple(row), tuple(counted))


def alignment_is_weak_on_the_median(results: Results) -> Verdict:
    """Y3-median, a second rule made before any run was judged: Y3 with a(0) of the median pair.

    Yes: the median over pairs of a(0) / background within 0.75-1.25; the rest as in Y3.
    The reason: of random unit vectors |<u, v>| is half-normal, its deviation 0.76 of its mean, so
    a mean of ten is 1 +- 0.24 of background and about 70% of pairs at chance lie within 0.75-1.25.
    """
    return judge_base_runs(WEAKNESS_ON_THE_MEDIAN, results, _see_median)


def _see_median(ds: xr.Dataset) -> Seen:
    start = float(_start(ds).median())
    _, weak, top = weakness(ds)
    at_chance = None if np.isnan(start) else AT_CHANCE[0] <= start <= AT_CHANCE[1]
    met = all_met([at_chance, weak.at_least(WEAK_SHARE), top.at_least(TOP_SHARE)])
    return Seen((start, met), (start, weak.share, top.share))


class Weakness(NamedTuple):
    """The three parts of Y3."""

    at_chance: Tally
    weak: Tally
    top_above: Tally


def weakness(ds: xr.Dataset) -> Weakness:
    """Pairs at chance at the start, pairs never above 0.5, pairs whose top ranks stand out."""
    start = _start(ds)
    near = neighbours(overlaps(ds))
    largest = near.rankscope.mean_alignment().max("step")
    end = near["alignment"].isel(step=-1)
    above = _mean(end, 0, 10) - _mean(end, 50, 100)
    return Weakness(
        count((start >= AT_CHANCE[0]) & (start <= AT_CHANCE[1]), measured=start),
        count(largest <= WEAK, measured=largest),
        count(above > 0, measured=above),
    )


def _start(ds: xr.Dataset) -> xr.DataArray:
    """(pair): a(0) / background, only once of layers that start as copies of one."""
    start = relative_alignment(ds.isel(step=[0])).isel(step=0)
    if not declared(ds.attrs.get("declaration"), "copied_layers"):
        return start
    first: dict[str, int] = {}  # by the name without the number of the layer
    for position, name in enumerate(start["pair"].to_numpy()):
        first.setdefault(LAYER.sub("", name), position)
    return start.isel(pair=[*first.values()])


def _mean(diagonal: xr.DataArray, after: int, upto: int) -> xr.DataArray:
    chosen = diagonal.sel(i=(diagonal["i"] > after) & (diagonal["i"] <= upto))
    return chosen.mean("i")


def declared(declaration: Any, field: str) -> Any:
    """The value of the first field of that name anywhere in a stored declaration, or None."""
    if isinstance(declaration, Mapping):
        if field in declaration:
            return declaration[field]
        declaration = list(declaration.values())
    if isinstance(declaration, Sequence) and not isinstance(declaration, str):
        found = (declared(each, field) for each in declaration)
        return next((each for each in found if each is not None), None)
    return None


def relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a / background; NaN for pairs of single vectors, which have no background."""
    near = neighbours(overlaps(ds))
    ratio: xr.DataArray = near.rankscope.mean_alignment() / near["alignment_background"]
    return ratio


def alignment_peaks_early(results: Results) -> Verdict:
    """Y3b. Alignment of the top ranks peaks early, then diffuses.

    Yes: the maximum of a(t) / background falls in the first third of snapshots and the end is
    below 80% of it, in >= half of pairs, at the base decay. The first third of T snapshots are
    those numbered 1 to T / 3, that at the start being the first; with T < 3 it cannot be told.
    """
    return judge_base_runs(EARLY_PEAK, results, _see_peak)


def _see_peak(ds: xr.Dataset) -> Seen:
    course = relative_alignment(ds).transpose("step", "pair")
    early, fallen = peaks_early(course), has_fallen(course)
    measured = (course.max("step") + course.isel(step=-1)).where(course.sizes["step"] >= 3)
    found = count(early & fallen, measured=measured)
    shares = (found.share, *(count(part, measured=measured).share for part in (early, fallen)))
    outcome = found.share, found.at_least(EARLY_SHARE)
    return Seen(outcome, (*shares, str(found)), (("peaks early, then falls", found),))


def peaks_early(course: xr.DataArray) -> xr.DataArray:
    """(pair): whether (step, pair) is highest in the first third of snapshots."""
    at = course.fillna(-np.inf).argmax("step")
    return (at + 1) * 3 <= course.sizes["step"]


def has_fallen(course: xr.DataArray) -> xr.DataArray:
    """(pair): whether the last of (step, pair) is below 80% of the highest."""
    return course.isel(step=-1) < LEFT_OF_PEAK * course.max("step")


def queries_and_keys_align_best(results: Results) -> Verdict:
    """Y10. Queries and keys are the best-aligned kind of pair in the Transformer.

    Yes: the Q-K kind has the largest median a / background in lm, at the end and the base decay.
    Pairs are grouped by their kind; input and output layer are kinds of their own. Kinds without a
    value take no part; without one of Q-K, or of any other, it cannot be told.
    """
    return judge_base_runs(BEST_KIND, results, _see_kinds)


def _see_kinds(ds: xr.Dataset) -> Seen | None:
    end = relative_alignment(ds.isel(step=[-1])).isel(step=0)
    kinds = end["pair_kind"].to_numpy()
    if "qk" not in kinds:
        return None
    every = {str(kind): float(end[kinds == kind].median()) for kind in np.unique(kinds)}
    medians = {kind: value for kind, value in every.items() if not np.isnan(value)}
    ranked = sorted(medians.items(), key=lambda entry: entry[1], reverse=True)
    own, best = medians.get("qk"), next((value for kind, value in ranked if kind != "qk"), None)
    listed = ", ".join(f"{kind} {value:.3g}" for kind, value in ranked)
    if own is None or best is None:
        return Seen((None, None), (own, best, listed))
    return Seen((own / best if best > 0 else None, own > best), (own, best, listed))
