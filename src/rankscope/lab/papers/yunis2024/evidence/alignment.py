"""Y3, Y3b, Y10, Y11: alignment of neighbouring matrices at the base decay and around it."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.yunis2024.claims.alignment import (
    AT_CHANCE,
    has_fallen,
    peaks_early,
    weakness,
)
from rankscope.lab.papers.yunis2024.claims.decay import final_relative_alignment
from rankscope.lab.papers.yunis2024.claims.filters import centre_and_others
from rankscope.lab.papers.yunis2024.evidence.runs import (
    DIRECTIONS,
    Reading,
    at_base_decay,
    base_run,
    by_column,
    decay_columns,
    met,
    met_of,
    of_kind,
    sweeps_of,
)
from rankscope.lab.papers.yunis2024.runs import BASE, relative_alignment
from rankscope.lab.reporting.evidence import Row, out_of

RANDOM_PAIRS = 200_000
JUMP, NOTABLE = 3.0, 0.05  # a jump: the loss triples, and is above this


def at_chance(runs: Runs) -> Table:
    """Pairs at chance at step 0, and pairs never above 0.5, at the base decay."""
    tallies = {place: weakness(ds) for place, ds in at_base_decay(runs).items()}
    rows: list[Row] = [
        (*place, met_of(parts.at_chance), parts.at_chance.share, met_of(parts.weak))
        for place, parts in tallies.items()
    ]
    count = sum(met(parts.at_chance) for parts in tallies.values())
    total = sum(len(parts.at_chance.counted) for parts in tallies.values())
    rows.append(("together", None, out_of(count, total), count / total, None))
    rows.append(("random directions", None, None, random_share(), None))
    columns = ("network", "seed", "at chance at step 0", "share", "never above 0.5")
    return Table(columns, tuple(rows), "a(0) / background within 0.75-1.25; a(t) <= 0.5")


def strong_pairs(runs: Runs) -> Table:
    """Pairs above 0.5 at some snapshot, by kind, at the base decay."""
    rows: list[Row] = []
    for place, ds in at_base_decay(runs).items():
        kinds = dict(zip(ds["pair"].to_numpy(), ds["pair_kind"].to_numpy(), strict=True))
        totals, strong = Counter(kinds.values()), weakness(ds).weak.exceptions
        for kind, count in Counter(kinds[name] for name in strong).items():
            first = next(name for name in strong if kinds[name] == kind)
            rows.append((*place, kind, out_of(count, totals[kind]), first))
    columns = ("network", "seed", "kind", "pairs", "first of them")
    return Table(columns, tuple(rows), "pairs above 0.5")


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


def lm_peaks_by_decay(runs: Runs) -> Table:
    """Transformer: pairs that peak in the first third of steps and fall, by decay."""

    def falls_of_mlp(ds: xr.Dataset) -> int:
        return int(peaks_by_steps(ds)[of_kind(ds, "w1-w2")].sum())

    def median_of_mlp(ds: xr.Dataset) -> xr.DataArray:
        return relative_alignment(ds)[:, of_kind(ds, "w1-w2")].median("pair")

    return sweeps_of(runs, "lm").table(
        "a / background",
        {
            "share of all pairs": lambda ds: float(peaks_by_steps(ds).mean()),
            "pairs inside the MLP": falls_of_mlp,
            "median inside the MLP, highest": lambda ds: float(median_of_mlp(ds).max()),
            "median inside the MLP, at the end": lambda ds: float(median_of_mlp(ds)[-1]),
        },
    )


def peaks_by_steps(ds: xr.Dataset) -> xr.DataArray:
    """(pair): whether it is highest in the first third of steps and ends below 80% of that."""
    course = relative_alignment(ds)
    early = course["step"][course.argmax("step")] <= course["step"][-1] / 3
    return early & has_fallen(course)


def lstm_jumps(runs: Runs) -> Table:
    """LSTM: jumps of the training loss, and alignment of the pair of figure 3 around them."""
    rows: list[Row] = []
    for decay, ds in sweeps_of(runs, "lstm").first.items():
        loss, steps = ds["training_loss"].to_numpy(), ds["step"].to_numpy()
        pair = relative_alignment(ds).sel(pair=ds.attrs["shown_pair"]).to_numpy()
        for place in jump_positions(loss):
            around = slice(place - 1, place + 1)
            values = (*loss[around], *pair[around], pair[-1])
            rows.append((f"{decay:g}", *map(int, steps[around]), *map(float, values)))
    columns = ("decay", "from step", "to", "loss before", "loss after")
    pair_columns = ("pair before", "pair after", "pair at the end")
    title = "jumps of the training loss; a / background of the pair"
    return Table((*columns, *pair_columns), tuple(rows), title)


def jump_positions(loss: np.ndarray) -> list[int]:
    """Return the positions of snapshots at which the loss has jumped since the one before."""
    after = np.flatnonzero((loss[1:] > JUMP * loss[:-1]) & (loss[1:] > NOTABLE)) + 1
    return [int(position) for position in after]


def lstm_peaks(runs: Runs) -> Table:
    """LSTM: pairs that meet Y3b's rule, and how many had fallen before the first jump, by decay."""
    return sweeps_of(runs, "lstm").table(
        "a / background; early: first third of snapshots; fallen: below 80% of the peak",
        {
            "share that peaks early and falls": lambda ds: float(meets_y3b(ds).mean()),
            "last step before the first jump": before_jump(lambda _, calm: int(calm["step"][-1])),
            "pairs of that share fallen by then": before_jump(_fallen_by_then),
            "share, if the fall is read then": before_jump(_early_and_fallen_by_then),
            "share, if training ends then": before_jump(
                lambda _, calm: float(meets_y3b(calm).mean())
            ),
        },
    )


def meets_y3b(ds: xr.Dataset) -> xr.DataArray:
    """(pair): whether it peaks in the first third of snapshots and ends below 80% of the peak."""
    course = relative_alignment(ds)
    return peaks_early(course) & has_fallen(course)


def before_jump(read: Callable[[xr.Dataset, xr.Dataset], Cell]) -> Reading:
    """Return a reading of a run and of its part before the first jump; None without a jump."""

    def read_both(ds: xr.Dataset) -> Cell:
        jumps = jump_positions(ds["training_loss"].to_numpy())
        return read(ds, ds.isel(step=slice(jumps[0]))) if jumps else None

    return read_both


def _fallen_by_then(ds: xr.Dataset, calm: xr.Dataset) -> str:
    in_share = meets_y3b(ds)
    fallen = in_share & has_fallen(relative_alignment(calm))
    return out_of(int(fallen.sum()), int(in_share.sum()))


def _early_and_fallen_by_then(ds: xr.Dataset, calm: xr.Dataset) -> float:
    early = peaks_early(relative_alignment(ds))
    return float((early & has_fallen(relative_alignment(calm))).mean())


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


def _by_kind(kinds: np.ndarray) -> dict[str, np.ndarray]:
    return {str(kind): kinds == kind for kind in dict.fromkeys(kinds)}


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
