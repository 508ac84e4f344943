"""B7-B9: stable ranks of the changes of products in vision transformers on CIFAR-10."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import xarray as xr

from rankscope.lab import tables
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.boix2023.claims.vits import LOWER, TREND
from rankscope.lab.papers.boix2023.runs import (
    CHANGE,
    INITIAL,
    KINDS,
    Kind,
    Window,
    by_head,
    change_ranks,
    growth_window,
    initial_ranks,
    products_of,
    settled_position,
    spectra,
    stop_steps,
    times,
)
from rankscope.lab.papers.yunis2024.evidence.runs import Row, kept, shown
from rankscope.lab.papers.yunis2024.sweeps import rank_correlation

SCALES = (1.0, 0.3, 0.1, 0.03)
COLUMNS = tuple(f"scale {scale:g}" for scale in SCALES)
Read = Callable[[float], Cell]  # of a scale


def vit(scale: float) -> xr.Dataset:
    return kept("boix2023/vit-cifar10")[f"vit/scale-{scale:g}"][0]


def epochs(scale: float) -> np.ndarray:
    return times(vit(scale))


def window(scale: float) -> Window:
    return growth_window(vit(scale))


def at_epoch(scale: float, epoch: int) -> int:
    """The position of the snapshot nearest to it."""
    return int(np.abs(epochs(scale) - epoch).argmin())


@cache
def head_ranks(scale: float, kind: Kind) -> np.ndarray:
    """(step, block, head): stable rank of the change; NaN at step 0."""
    ranks: np.ndarray = change_ranks(vit(scale), kind).to_numpy()
    return ranks


def mean_ranks(scale: float, kind: Kind) -> np.ndarray:
    """(step, block): mean over heads."""
    ranks: np.ndarray = head_ranks(scale, kind).mean(-1)
    return ranks


def scale_table(title: str, measures: Mapping[str, Read]) -> Table:
    rows = [(name, *map(read, SCALES)) for name, read in measures.items()]
    return Table(("", *COLUMNS), tuple(rows), title)


def span(values: np.ndarray) -> str:
    """ "1.1 to 1.3", or one number where both look the same; "-" of none."""
    return tables.span((float(values.min()), float(values.max())) if values.size else None)


def growth() -> Table:
    """Blocks of 6 whose K-Q rank grows, as it is judged and otherwise."""

    def trends(scale: float, start: int, last: int) -> np.ndarray:
        judged = slice(int(np.searchsorted(epochs(scale), start)), last + 1)
        return rank_correlation(epochs(scale)[judged], mean_ranks(scale, "kq")[judged])

    def every_epoch(scale: float) -> int:
        grid = np.arange(1, epochs(scale)[window(scale).last] + 0.5)
        of_blocks = mean_ranks(scale, "kq")[1:].T
        each = [np.interp(grid, epochs(scale)[1:], ranks) for ranks in of_blocks]
        return growing(rank_correlation(grid, np.stack(each, 1)))

    def failing(scale: float) -> str:
        below = np.flatnonzero(trends(scale, 3, window(scale).last) < TREND) + 1
        return ", ".join(f"block {block}" for block in below) or "none"

    def early(scale: float) -> int:
        return int(((epochs(scale) >= 1) & (epochs(scale) < 5)).sum())

    return scale_table(
        f"blocks with Spearman(time, stable rank) >= {TREND:g}",
        {
            "from epoch 1, as judged": lambda s: growing(trends(s, 1, window(s).last)),
            "from epoch 3": lambda s: growing(trends(s, 3, window(s).last)),
            "from epoch 3, without": failing,
            "from epoch 1, every epoch alike": every_epoch,
            "from epoch 1 to the end": lambda s: growing(trends(s, 1, len(epochs(s)) - 1)),
            "snapshots that are judged": lambda s: window(s).snapshots,
            "of these of epochs 1 to 4": early,
        },
    )


def growing(trends: np.ndarray) -> int:
    """How many correlations are as high as B7 and B8 ask for."""
    return int((trends >= TREND).sum())


def early_ranks() -> Table:
    """Stable rank of the change of K-Q by block, and how large the change is."""

    def ranks(scale: float, epoch: int) -> np.ndarray:
        found: np.ndarray = mean_ranks(scale, "kq")[at_epoch(scale, epoch)]
        return found

    def ends(scale: float) -> np.ndarray:
        found: np.ndarray = mean_ranks(scale, "kq")[window(scale).last]
        return found

    def counted(blocks: np.ndarray) -> str:
        return shown(int(blocks.sum()), blocks.size)

    return scale_table(
        f"the first snapshot is at step {int(vit(1.0)['step'][1])}; the window is that of B7",
        {
            "rank by block, first snapshot": lambda s: span(mean_ranks(s, "kq")[1]),
            "epoch 3": lambda s: span(ranks(s, 3)),
            "end of training, blocks 1 to 4": lambda s: span(mean_ranks(s, "kq")[-1, :4]),
            "window ends above epoch 3": lambda s: counted(ends(s) > ranks(s, 3)),
            "window ends below epoch 1": lambda s: counted(ends(s) < ranks(s, 1)),
            "|change| / |initial K-Q|, epoch 1": lambda s: relative_size(s, 1),
            "epoch 2": lambda s: relative_size(s, 2),
            "epochs of the lowest V-O": lowest_vo,
        },
    )


def relative_size(scale: float, epoch: int) -> float:
    """Frobenius norm of the change of K-Q over that of the initial product, mean over heads."""
    ds = vit(scale)
    change = spectra(ds.isel(step=[at_epoch(scale, epoch)]), "kq", of=CHANGE)[0]
    initial = spectra(ds.isel(step=[0]), "kq", of=INITIAL)[0]
    ratio = (change**2).sum("k") / (initial**2).sum("k")
    return float(np.sqrt(ratio).mean())


def lowest_vo(scale: float) -> str:
    """The epochs, from 1 on, at which blocks have their lowest rank of V-O."""
    first = window(scale).first
    return span(epochs(scale)[first + mean_ranks(scale, "vo")[first:].argmin(0)])


def starts() -> Table:
    """Stable rank of the change at the end by block and scale, and the error of these means."""
    rows: list[Row] = []
    for kind, name in KINDS.items():
        ends = np.stack([head_ranks(scale, kind)[-1] for scale in SCALES])  # (scale, block, head)
        means, errors = ends.mean(-1), standard_error(ends)
        rho = rank_correlation(np.array(SCALES), means)
        for block, of in enumerate(means.T):
            apart = float(of[1:].max() - of[1:].min())
            below_one = map(float, errors[1:, block])
            values = (*map(float, of), float(rho[block]), apart, *below_one)
            rows.append((name, str(block + 1), *values))
        medians = (float(each) for each in np.median(means, axis=1))
        rows.append((name, "median", *medians, *[None] * (1 + len(SCALES))))
    of_errors = (f"error at {scale:g}" for scale in SCALES[1:])
    columns = ("product", "block", *COLUMNS, "Spearman", "below 1 apart by", *of_errors)
    return Table(columns, tuple(rows), "mean over heads; error: the standard error of that mean")


def standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over the last axis: the sample's deviation over the root of its size."""
    error: np.ndarray = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return error


def readings() -> Table:
    """Blocks of 6 whose rank rises with scale, by when and how it is read."""
    wait = max(stop_steps(vit(scale)) for scale in SCALES)
    ways: dict[str, Callable[[float, Kind], np.ndarray]] = {
        "at the end": lambda s, kind: mean_ranks(s, kind)[-1],
        "at epoch 126": lambda s, kind: mean_ranks(s, kind)[at_epoch(s, 126)],
        "equally settled": lambda s, kind: mean_ranks(s, kind)[settled_position(vit(s), wait=wait)],
        "effective rank, end": effective_ranks,
    }
    rows: list[Row] = []
    for name, read in ways.items():
        found = {kind: np.stack([read(scale, kind) for scale in SCALES]) for kind in KINDS}
        counts = (growing(rank_correlation(np.array(SCALES), of)) for of in found.values())
        rows.append((name, *counts, *map(span, found["kq"])))
    columns = ("read", *KINDS.values(), *(f"K-Q, {column}" for column in COLUMNS))
    return Table(columns, tuple(rows), f"blocks with Spearman >= {TREND:g}; ranks by block")


def effective_ranks(scale: float, kind: Kind) -> np.ndarray:
    """(block): of the change at the end, mean over heads."""
    end = products_of(vit(scale).isel(step=[-1]), kind).rankscope.effective_rank(of=CHANGE)
    ranks: np.ndarray = by_head(end.isel(step=0)).mean("head").to_numpy()
    return ranks


def ratios(scale: float, kind: Kind) -> np.ndarray:
    """(step, block, head): stable rank of the change over the initial product's."""
    initial = initial_ranks(vit(scale), kind).to_numpy()
    ratio: np.ndarray = head_ranks(scale, kind) / initial
    return ratio


def low_ranks() -> Table:
    """The change's share of the initial stable rank at the end, over heads."""
    return scale_table(
        "stable rank of the change over that of the initial product",
        {
            "K-Q, largest": lambda s: float(ratios(s, "kq")[-1].max()),
            "V-O, largest": lambda s: float(ratios(s, "vo")[-1].max()),
            "V-O, median": lambda s: float(np.median(ratios(s, "vo")[-1])),
            f"V-O, heads above {LOWER:g}": lambda s: int((ratios(s, "vo")[-1] > LOWER).sum()),
        },
    )


def exceptions_over_time() -> Table:
    """The V-O above a quarter at scale 1 over time."""
    ds, course = vit(1.0), ratios(1.0, "vo")
    above = course > LOWER
    same = (above == above[-1]).all((1, 2))
    rows: list[Row] = []
    for at in (at_epoch(1.0, epoch) for epoch in (10, 13, 16, 20, 26, 32, 100, 500)):
        blocks = ", ".join(map(str, np.flatnonzero(above[at].any(-1)) + 1)) or "-"
        of_heads = (int(above[at].sum()), blocks, bool(same[at]), float(course[at].max()))
        losses = float(ds["training_loss"][at]), float(ds["validation_accuracy"][at])
        rows.append((f"{epochs(1.0)[at]:g}", *of_heads, *losses))
    columns = ("epoch", "heads above", "blocks", "as at the end", "largest")
    values, changed = span(course[-1][above[-1]]), np.flatnonzero(~same)
    since = f"from epoch {epochs(1.0)[changed[-1] + 1]:g} on" if len(changed) else "all along"
    title = f"above {LOWER:g} at the end: {values}; the same heads {since}"
    return Table((*columns, "training loss", "accuracy"), tuple(rows), title)
