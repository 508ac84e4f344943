"""B7-B9: stable ranks of the changes of products in vision transformers on CIFAR-10."""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.boix2023.claims.vits import LOWER, TREND
from rankscope.lab.papers.boix2023.runs import (
    CHANGE,
    INITIAL,
    KINDS,
    Kind,
    by_head,
    by_network,
    change_ranks,
    growth_window,
    initial_ranks,
    products_of,
    settled_position,
    spectra,
    stop_steps,
    times,
)
from rankscope.lab.reporting import terminal
from rankscope.lab.reporting.evidence import Row, out_of
from rankscope.lab.running.run import RunKey

VIT = RunKey("vit", experiment="boix2023/vit-cifar10")
Vits = dict[float, xr.Dataset]
Reading = Callable[[xr.Dataset], Cell]


def by_init_scale(runs: Runs) -> Vits:
    """Return the first seed at each initial scale, from the largest scale to the smallest."""
    seeds = by_network(runs)[VIT].by("scale")
    return {init_scale: seeds[init_scale][min(seeds[init_scale])] for init_scale in reversed(seeds)}


def columns_of(vits: Vits) -> tuple[str, ...]:
    return tuple(f"scale {init_scale:g}" for init_scale in vits)


def head_ranks(ds: xr.Dataset, kind: Kind) -> np.ndarray:
    """(step, block, head): stable rank of the change; NaN at step 0."""
    ranks: np.ndarray = change_ranks(ds, kind).to_numpy()
    return ranks


def mean_ranks(ds: xr.Dataset, kind: Kind, position: int | slice = slice(None)) -> np.ndarray:
    """(step, block), or (block) at one snapshot: mean of `head_ranks` over heads."""
    ranks: np.ndarray = head_ranks(ds, kind)[position].mean(-1)
    return ranks


def at_epoch(ds: xr.Dataset, epoch: int) -> int:
    """Return the position of the snapshot nearest to an epoch."""
    return int(np.abs(times(ds) - epoch).argmin())


def scale_table(title: str, vits: Vits, readings: Mapping[str, Reading]) -> Table:
    """Return a table with a row for each reading, a column for each initial scale."""
    rows = tuple((name, *map(read, vits.values())) for name, read in readings.items())
    return Table(("", *columns_of(vits)), rows, title)


def span(values: np.ndarray) -> str:
    """Return "1.1 to 1.3", one number if both look the same, "-" without values."""
    return terminal.span((float(values.min()), float(values.max())) if values.size else None)


def growth(runs: Runs) -> Table:
    """Blocks of 6 whose K-Q rank grows, in the window of B7 and in others."""

    def trends(ds: xr.Dataset, start: int, last: int) -> np.ndarray:
        epochs = times(ds)
        judged = slice(int(np.searchsorted(epochs, start)), last + 1)
        return rank_correlation(epochs[judged], mean_ranks(ds, "kq", judged))

    def last(ds: xr.Dataset) -> int:
        return growth_window(ds).last

    def grow_at_every_epoch(ds: xr.Dataset) -> int:
        epochs = np.arange(1, times(ds)[last(ds)] + 0.5)
        ranks = [np.interp(epochs, times(ds)[1:], block) for block in mean_ranks(ds, "kq")[1:].T]
        return growing(rank_correlation(epochs, np.stack(ranks, 1)))

    def failing(ds: xr.Dataset) -> str:
        below = np.flatnonzero(trends(ds, 3, last(ds)) < TREND) + 1
        return ", ".join(f"block {block}" for block in below) or "none"

    return scale_table(
        f"blocks with Spearman(time, stable rank) >= {TREND:g}",
        by_init_scale(runs),
        {
            "from epoch 1, as judged": lambda ds: growing(trends(ds, 1, last(ds))),
            "from epoch 3": lambda ds: growing(trends(ds, 3, last(ds))),
            "from epoch 3, exceptions": failing,
            "from epoch 1, each epoch counted once": grow_at_every_epoch,
            "from epoch 1 to the end": lambda ds: growing(trends(ds, 1, len(times(ds)) - 1)),
            "snapshots judged": lambda ds: growth_window(ds).snapshots,
            "of them in epochs 1 to 4": lambda ds: int(((times(ds) >= 1) & (times(ds) < 5)).sum()),
        },
    )


def growing(trends: np.ndarray) -> int:
    """Count the correlations that are as high as B7 and B8 ask for."""
    return int((trends >= TREND).sum())


def early_ranks(runs: Runs) -> Table:
    """Stable rank of the change of K-Q by block, and size of the change."""
    vits = by_init_scale(runs)

    def ranks(ds: xr.Dataset, epoch: int) -> np.ndarray:
        return mean_ranks(ds, "kq", at_epoch(ds, epoch))

    def window_end(ds: xr.Dataset) -> np.ndarray:
        return mean_ranks(ds, "kq", growth_window(ds).last)

    def counted(blocks: np.ndarray) -> str:
        return out_of(int(blocks.sum()), blocks.size)

    return scale_table(
        f"the first snapshot is at step {int(vits[1.0]['step'][1])}; the window is that of B7",
        vits,
        {
            "rank by block, first snapshot": lambda ds: span(mean_ranks(ds, "kq", 1)),
            "epoch 3": lambda ds: span(ranks(ds, 3)),
            "end of training, blocks 1 to 4": lambda ds: span(mean_ranks(ds, "kq", -1)[:4]),
            "window ends above epoch 3": lambda ds: counted(window_end(ds) > ranks(ds, 3)),
            "window ends below epoch 1": lambda ds: counted(window_end(ds) < ranks(ds, 1)),
            "|change| / |initial K-Q|, epoch 1": lambda ds: relative_size(ds, 1),
            "epoch 2": lambda ds: relative_size(ds, 2),
            "epochs of the lowest V-O": lowest_vo,
        },
    )


def relative_size(ds: xr.Dataset, epoch: int) -> float:
    """Return |change of K-Q|_F over |initial K-Q|_F, mean over heads."""
    change = spectra(ds.isel(step=[at_epoch(ds, epoch)]), "kq", of=CHANGE)[0]
    initial = spectra(ds.isel(step=[0]), "kq", of=INITIAL)[0]
    ratio = (change**2).sum("k") / (initial**2).sum("k")
    return float(np.sqrt(ratio).mean())


def lowest_vo(ds: xr.Dataset) -> str:
    """Return the epochs, from 1 on, at which blocks have their lowest rank of V-O."""
    first = growth_window(ds).first
    return span(times(ds)[first + mean_ranks(ds, "vo")[first:].argmin(0)])


def final_ranks(runs: Runs) -> Table:
    """Stable rank of the change at the end by block and initial scale, with standard errors."""
    vits, rows = by_init_scale(runs), list[Row]()
    for kind, name in KINDS.items():
        ends = np.stack([head_ranks(ds, kind)[-1] for ds in vits.values()])  # (scale, block, head)
        means, errors = ends.mean(-1), standard_error(ends)
        correlations = rank_correlation(np.array([*vits]), means)
        for block, ranks in enumerate(means.T):
            apart = float(ranks[1:].max() - ranks[1:].min())
            values = (*map(float, ranks), float(correlations[block]), apart)
            rows.append((name, str(block + 1), *values, *map(float, errors[1:, block])))
        medians = map(float, np.median(means, axis=1))
        rows.append((name, "median", *medians, *[None] * (1 + len(vits))))
    error_columns = (f"error at {init_scale:g}" for init_scale in [*vits][1:])
    columns = ("product", "block", *columns_of(vits), "Spearman", "below 1 apart by")
    title = "mean over heads; error: the standard error of that mean"
    return Table((*columns, *error_columns), tuple(rows), title)


def standard_error(values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over the last axis."""
    error: np.ndarray = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error


def trends_by_reading(runs: Runs) -> Table:
    """Blocks of 6 whose rank rises with the initial scale, by when and how it is read."""
    vits = by_init_scale(runs)
    wait = max(map(stop_steps, vits.values()))
    readings: dict[str, Callable[[xr.Dataset, Kind], np.ndarray]] = {
        "at the end": lambda ds, kind: mean_ranks(ds, kind, -1),
        "at epoch 126": lambda ds, kind: mean_ranks(ds, kind, at_epoch(ds, 126)),
        "equally settled": lambda ds, kind: mean_ranks(ds, kind, settled_position(ds, wait=wait)),
        "effective rank, end": effective_ranks,
    }
    rows: list[Row] = []
    for name, read in readings.items():
        ranks = {kind: np.stack([read(ds, kind) for ds in vits.values()]) for kind in KINDS}
        counts = (growing(rank_correlation(np.array([*vits]), ranks[kind])) for kind in KINDS)
        rows.append((name, *counts, *map(span, ranks["kq"])))
    columns = ("read", *KINDS.values(), *(f"K-Q, {column}" for column in columns_of(vits)))
    return Table(columns, tuple(rows), f"blocks with Spearman >= {TREND:g}; ranks by block")


def effective_ranks(ds: xr.Dataset, kind: Kind) -> np.ndarray:
    """(block): effective rank of the change at the end, mean over heads."""
    end = products_of(ds.isel(step=[-1]), kind).rankscope.effective_rank(of=CHANGE)
    ranks: np.ndarray = by_head(end.isel(step=0)).mean("head").to_numpy()
    return ranks


def ratios(ds: xr.Dataset, kind: Kind) -> np.ndarray:
    """(step, block, head): stable rank of the change over the initial product's."""
    ratio: np.ndarray = head_ranks(ds, kind) / initial_ranks(ds, kind).to_numpy()
    return ratio


def low_ranks(runs: Runs) -> Table:
    """Stable rank of the change over that of the initial product at the end, over heads."""
    return scale_table(
        "stable rank of the change over that of the initial product",
        by_init_scale(runs),
        {
            "K-Q, largest": lambda ds: float(ratios(ds, "kq")[-1].max()),
            "V-O, largest": lambda ds: float(ratios(ds, "vo")[-1].max()),
            "V-O, median": lambda ds: float(np.median(ratios(ds, "vo")[-1])),
            f"V-O, heads above {LOWER:g}": lambda ds: int((ratios(ds, "vo")[-1] > LOWER).sum()),
        },
    )


def exceptions_over_time(runs: Runs) -> Table:
    """Heads whose V-O is above a quarter at initial scale 1, over time."""
    ds = by_init_scale(runs)[1.0]
    epochs, course = times(ds), ratios(ds, "vo")
    above = course > LOWER
    as_at_end = (above == above[-1]).all((1, 2))
    rows: list[Row] = []
    for position in (at_epoch(ds, epoch) for epoch in (10, 13, 16, 20, 26, 32, 100, 500)):
        blocks = ", ".join(map(str, np.flatnonzero(above[position].any(-1)) + 1)) or "-"
        heads = int(above[position].sum()), blocks, bool(as_at_end[position])
        reached = (float(ds[name][position]) for name in ("training_loss", "validation_accuracy"))
        rows.append((f"{epochs[position]:g}", *heads, float(course[position].max()), *reached))
    columns = ("epoch", "heads above", "blocks", "as at the end", "largest")
    values, changed = span(course[-1][above[-1]]), np.flatnonzero(~as_at_end)
    since = f"from epoch {epochs[changed[-1] + 1]:g} on" if len(changed) else "all along"
    title = f"above {LOWER:g} at the end: {values}; the same heads {since}"
    return Table((*columns, "training loss", "accuracy"), tuple(rows), title)
