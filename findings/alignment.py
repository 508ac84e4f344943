"""Y3, Y3b, Y10, Y11: how neighbouring matrices align at the decay of figures 1-3, and around it."""

from collections import Counter

import numpy as np
import xarray as xr

from findings.runs import Row, base_run, base_runs, decay_table, shown, sweep
from rankscope.lab.claims.alignment import AT_CHANCE, LEFT_OF_PEAK, relative_alignment, weakness
from rankscope.lab.claims.decay import final_relative_alignment
from rankscope.lab.claims.filters import centre_and_others
from rankscope.lab.claims.tally import Tally
from rankscope.lab.verdict import Cell, Table

DIRECTIONS = 10  # over which alignment is averaged
RANDOM_PAIRS = 200_000
JUMP, NOTABLE = 3.0, 0.05  # a jump: the loss rises to three times as much, and above this


def at_chance() -> Table:
    """Pairs at chance at step 0 and pairs never above 0.5, at the base decay."""
    parts = {of: weakness(ds) for of, ds in base_runs().items()}
    rows: list[Row] = [
        (network, seed, _met(part.at_chance), part.at_chance.share, _met(part.weak))
        for (network, seed), part in parts.items()
    ]
    tallies = [part.at_chance for part in parts.values()]
    met, every = (sum(map(each, tallies)) for each in (_met_count, lambda t: len(t.counted)))
    rows.append(("together", None, shown(met, every), met / every, None))
    rows.append(("random directions", None, None, random_share(), None))
    columns = ("network", "seed", "at chance at step 0", "share", "never above 0.5")
    return Table(columns, tuple(rows), "alignment over background within 0.75-1.25; alignment")


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


def _met_count(tally: Tally) -> int:
    return len(tally.counted) - len(tally.exceptions)


def _met(tally: Tally) -> str:
    return shown(_met_count(tally), len(tally.counted))


def peaks_by_kind() -> Table:
    """Transformer: pairs that peak in the first third of steps and fall, by kind."""
    ds = base_run("lm")
    course, falls = relative_alignment(ds), peaks_early(ds)
    kinds = course["pair_kind"].to_numpy()
    chosen = {kind: kinds == kind for kind in dict.fromkeys(kinds.tolist())}
    rows: list[Row] = []
    for name, those in {"all": kinds != "", "not qk": kinds != "qk", **chosen}.items():
        median = course[:, those].median("pair")
        at = int(median.argmax("step"))
        count = shown(int(falls[those].sum()), int(those.sum()))
        rows.append((name, count, float(median[at]), int(median["step"][at]), float(median[-1])))
    columns = ("kind", "peak early and fall", "highest median", "at step", "at the end")
    return Table(columns, tuple(rows), "a / background at decay 0.1")


def peaks_by_decay() -> Table:
    """Transformer: the same of all pairs and of those inside the MLP, by decay."""

    def mlp(ds: xr.Dataset) -> np.ndarray:
        inside: np.ndarray = ds["pair_kind"].to_numpy() == "w1-w2"
        return inside

    def median_mlp(ds: xr.Dataset) -> xr.DataArray:
        return relative_alignment(ds)[:, mlp(ds)].median("pair")

    return decay_table(
        "a / background",
        "lm",
        {
            "share of all pairs that peak early and fall": lambda ds: float(peaks_early(ds).mean()),
            "pairs of the MLP that do": lambda ds: int(peaks_early(ds)[mlp(ds)].sum()),
            "median of the MLP's, highest": lambda ds: float(median_mlp(ds).max()),
            "median of the MLP's, at the end": lambda ds: float(median_mlp(ds)[-1]),
        },
    )


def peaks_early(ds: xr.Dataset) -> xr.DataArray:
    """(pair): highest in the first third of training, by steps, and below 80% of it at the end."""
    course = relative_alignment(ds)
    early = course["step"][course.argmax("step")] <= course["step"][-1] / 3
    return early & (course.isel(step=-1) < LEFT_OF_PEAK * course.max("step"))


def learnt_by_heart() -> Table:
    """Transformer: training and held-out loss, by decay."""

    def lowest_at(ds: xr.Dataset) -> int:
        return int(ds["step"][int(ds["validation_loss"].argmin("step"))])

    return decay_table(
        f"loss; a third of the snapshots ends at step {_third(base_run('lm'))}",
        "lm",
        {
            "lowest held-out loss": lambda ds: float(ds["validation_loss"].min()),
            "at step": lowest_at,
            "held-out loss at the end": lambda ds: float(ds["validation_loss"][-1]),
            "training loss at the end": lambda ds: float(ds["training_loss"][-1]),
        },
    )


def _third(ds: xr.Dataset) -> int:
    return int(ds["step"][ds.sizes["step"] // 3 - 1])


def jumps() -> Table:
    """LSTM: where the training loss jumps, and the alignment of the pair of figure 3 there."""
    rows: list[Row] = []
    for decay, ds in sweep("lstm").items():
        loss, steps = ds["training_loss"].to_numpy(), ds["step"].to_numpy()
        pair = relative_alignment(ds).sel(pair=ds.attrs["shown_pair"]).to_numpy()
        after = np.flatnonzero((loss[1:] > JUMP * loss[:-1]) & (loss[1:] > NOTABLE)) + 1
        for at in after.tolist():
            values = (loss[at - 1], loss[at], pair[at - 1], pair[at], pair[-1])
            rows.append((f"{decay:g}", int(steps[at - 1]), int(steps[at]), *map(float, values)))
    columns = ("decay", "from step", "to", "loss", "loss", "pair", "pair", "pair at the end")
    return Table(columns, tuple(rows), "jumps of the training loss; a / background of the pair")


def kinds_by_decay() -> Table:
    """Median final alignment of each kind of pair in the Transformer, by decay."""
    kinds = base_run("lm")["pair_kind"].to_numpy()

    def median(ds: xr.Dataset, kind: str) -> Cell:
        return float(final_relative_alignment(ds)[kinds == kind].median())

    rows = [
        (f"{kind} ({(kinds == kind).sum()})", *(median(ds, kind) for ds in sweep("lm").values()))
        for kind in dict.fromkeys(kinds.tolist())
    ]
    columns = ("kind (pairs)", *(f"decay {decay:g}" for decay in sweep("lm")))
    return Table(columns, tuple(rows), "median a / background at the end")


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
