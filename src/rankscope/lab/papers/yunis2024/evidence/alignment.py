"""Y3, Y3b, Y10, Y11: how neighbouring matrices align at the decay of figures 1-3, and around it."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.yunis2024.claims.alignment import (
    AT_CHANCE,
    has_fallen,
    peaks_early,
    relative_alignment,
    weakness,
)
from rankscope.lab.papers.yunis2024.claims.decay import final_relative_alignment
from rankscope.lab.papers.yunis2024.claims.filters import centre_and_others
from rankscope.lab.papers.yunis2024.evidence.runs import (
    DIRECTIONS,
    Measure,
    Row,
    base_run,
    base_runs,
    by_column,
    decay_columns,
    decay_table,
    decays,
    met,
    met_of,
    of_kind,
    shown,
    sweep,
)
from rankscope.lab.papers.yunis2024.runs import BASE

RANDOM_PAIRS = 200_000
JUMP, NOTABLE = 3.0, 0.05  # a jump: the loss rises to three times as much, and above this


def at_chance() -> Table:
    """Pairs at chance at step 0 and pairs never above 0.5, at the base decay."""
    parts = {of: weakness(ds) for of, ds in base_runs().items()}
    rows: list[Row] = [
        (network, seed, met_of(part.at_chance), part.at_chance.share, met_of(part.weak))
        for (network, seed), part in parts.items()
    ]
    tallies = [part.at_chance for part in parts.values()]
    those, every = sum(map(met, tallies)), sum(len(tally.counted) for tally in tallies)
    rows.append(("together", None, shown(those, every), those / every, None))
    rows.append(("random directions", None, None, random_share(), None))
    columns = ("network", "seed", "at chance at step 0", "share", "never above 0.5")
    return Table(columns, tuple(rows), "a(0) / background within 0.75-1.25; a(t) <= 0.5")


def strong_pairs() -> Table:
    """The pairs that lie above 0.5 at some snapshot, by kind, at the base decay."""
    rows: list[Row] = []
    for (network, seed), ds in base_runs().items():
        kinds = dict(zip(ds["pair"].to_numpy(), ds["pair_kind"].to_numpy(), strict=True))
        every, strong = Counter(kinds.values()), weakness(ds).weak.exceptions
        for kind, count in Counter(kinds[name] for name in strong).items():
            first = next(name for name in strong if kinds[name] == kind)
            rows.append((network, seed, kind, shown(count, every[kind]), first))
    return Table(("network", "seed", "kind", "pairs", "the first"), tuple(rows), "pairs above 0.5")


def random_share() -> float:
    """Of pairs of random directions, whose overlaps are half-normal, the share called at chance."""
    overlaps = np.abs(np.random.default_rng(0).standard_normal((RANDOM_PAIRS, DIRECTIONS)))
    ratio = overlaps.mean(1) / np.sqrt(2 / np.pi)
    return float(np.mean((ratio >= AT_CHANCE[0]) & (ratio <= AT_CHANCE[1])))


def peaks_by_kind() -> Table:
    """Transformer: pairs that peak in the first third of steps and fall, by kind."""
    ds = base_run("lm")
    course, falls = relative_alignment(ds), peaks_by_steps(ds)
    kinds = course["pair_kind"].to_numpy()
    rows: list[Row] = []
    for name, those in {"all": kinds != "", "not qk": kinds != "qk", **_by_kind(kinds)}.items():
        median = course[:, those].median("pair")
        at = int(median.argmax("step"))
        count = shown(int(falls[those].sum()), int(those.sum()))
        rows.append((name, count, float(median[at]), int(median["step"][at]), float(median[-1])))
    columns = ("kind", "peak early and fall", "highest median", "at step", "at the end")
    return Table(columns, tuple(rows), f"a / background at decay {BASE['lm']:g}")


def peaks_by_decay() -> Table:
    """Transformer: the same of all pairs and of those inside the MLP, by decay."""

    def median_mlp(ds: xr.Dataset) -> xr.DataArray:
        return relative_alignment(ds)[:, of_kind(ds, "w1-w2")].median("pair")

    return decay_table(
        "a / background",
        "lm",
        {
            "share of all pairs that peak early and fall": lambda ds: float(
                peaks_by_steps(ds).mean()
            ),
            "pairs of the MLP that do": lambda ds: int(
                peaks_by_steps(ds)[of_kind(ds, "w1-w2")].sum()
            ),
            "median of the MLP's, highest": lambda ds: float(median_mlp(ds).max()),
            "median of the MLP's, at the end": lambda ds: float(median_mlp(ds)[-1]),
        },
    )


def peaks_by_steps(ds: xr.Dataset) -> xr.DataArray:
    """(pair): highest in the first third of training, by steps, and below 80% of it at the end."""
    course = relative_alignment(ds)
    early = course["step"][course.argmax("step")] <= course["step"][-1] / 3
    return early & has_fallen(course)


def jumps() -> Table:
    """LSTM: where the training loss jumps, and the alignment of the pair of figure 3 there."""
    rows: list[Row] = []
    for decay, ds in sweep("lstm").items():
        loss, steps = ds["training_loss"].to_numpy(), ds["step"].to_numpy()
        pair = relative_alignment(ds).sel(pair=ds.attrs["shown_pair"]).to_numpy()
        for at in jump_positions(loss):
            values = (loss[at - 1], loss[at], pair[at - 1], pair[at], pair[-1])
            rows.append((f"{decay:g}", int(steps[at - 1]), int(steps[at]), *map(float, values)))
    columns = ("decay", "from step", "to", "loss before", "loss after")
    of_pair = ("pair before", "pair after", "pair at the end")
    title = "jumps of the training loss; a / background of the pair"
    return Table((*columns, *of_pair), tuple(rows), title)


def jump_positions(loss: np.ndarray) -> list[int]:
    """Of the snapshots at which the loss is a jump higher than at the one before."""
    after = np.flatnonzero((loss[1:] > JUMP * loss[:-1]) & (loss[1:] > NOTABLE)) + 1
    return [int(at) for at in after]


def lstm_peaks() -> Table:
    """LSTM: the pairs that meet Y3b's rule, by decay, and how many had fallen before a jump."""
    return decay_table(
        "a / background; early: first third of snapshots; fallen: below 80% of the peak",
        "lstm",
        {
            "share that peaks early and falls": lambda ds: float(meets_y3b(ds).mean()),
            "last step before the first jump": before_jump(lambda _, calm: int(calm["step"][-1])),
            "of these pairs, fallen by then": before_jump(_fallen_by_then),
            "share, the fall read then": before_jump(_early_and_fallen_by_then),
            "share, by the rule up to then": before_jump(
                lambda _, calm: float(meets_y3b(calm).mean())
            ),
        },
    )


def meets_y3b(ds: xr.Dataset) -> xr.DataArray:
    """(pair): whether it peaks in the first third of snapshots and ends below 80% of the peak."""
    course = relative_alignment(ds)
    return peaks_early(course) & has_fallen(course)


def before_jump(read: Callable[[xr.Dataset, xr.Dataset], Cell]) -> Measure:
    """Of a run and its part before the first jump of the loss; None where there is no jump."""

    def measure(ds: xr.Dataset) -> Cell:
        found = jump_positions(ds["training_loss"].to_numpy())
        return read(ds, ds.isel(step=slice(found[0]))) if found else None

    return measure


def _fallen_by_then(ds: xr.Dataset, calm: xr.Dataset) -> str:
    met = meets_y3b(ds)
    return shown(int((met & has_fallen(relative_alignment(calm))).sum()), int(met.sum()))


def _early_and_fallen_by_then(ds: xr.Dataset, calm: xr.Dataset) -> float:
    """Early as in all of training."""
    early = peaks_early(relative_alignment(ds))
    return float((early & has_fallen(relative_alignment(calm))).mean())


def kinds_by_decay() -> Table:
    """Median final alignment of each kind of pair in the Transformer, by decay."""
    kinds = base_run("lm")["pair_kind"].to_numpy()
    rows = [
        (
            f"{kind} ({those.sum()})",
            *by_column(decays("lm"), sweep("lm"), partial(_final_median, those=those)),
        )
        for kind, those in _by_kind(kinds).items()
    ]
    columns = ("kind (pairs)", *decay_columns(decays("lm")))
    return Table(columns, tuple(rows), "median a / background at the end")


def _final_median(ds: xr.Dataset, *, those: np.ndarray) -> float:
    return float(final_relative_alignment(ds)[those].median())


def _by_kind(kinds: np.ndarray) -> dict[str, np.ndarray]:
    return {str(kind): kinds == kind for kind in dict.fromkeys(kinds)}


def centres() -> Table:
    """Pairs whose centre tap is above the mean of the others, raw and of unit length."""

    def counted(ds: xr.Dataset, of: str) -> str:
        centre, others = centre_and_others(ds, of)
        return shown(int((centre > others).sum()), centre.size)

    rows = tuple(
        (network, seed, counted(ds, "alignment"), counted(ds, "alignment_normalized"))
        for (network, seed), ds in base_runs(("vgg", "unet")).items()
    )
    return Table(("network", "seed", "raw", "unit length"), rows, "centre above the other taps")
