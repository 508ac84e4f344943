"""B7-B9: stable ranks of the changes of products in vision transformers on CIFAR-10."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

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
    Window,
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


@dataclass(frozen=True)
class Trained:
    """The first seed at one initial scale."""

    init_scale: float
    ds: xr.Dataset

    @cached_property
    def epochs(self) -> np.ndarray:
        """Epoch of each snapshot."""
        return times(self.ds)

    @cached_property
    def window(self) -> Window:
        """Snapshots that B7 judges."""
        return growth_window(self.ds)

    @cached_property
    def head_ranks(self) -> dict[Kind, np.ndarray]:
        """(step, block, head): stable rank of the change; NaN at step 0."""
        return {kind: change_ranks(self.ds, kind).to_numpy() for kind in KINDS}

    def mean_ranks(self, kind: Kind) -> np.ndarray:
        """(step, block): mean of `head_ranks` over heads."""
        ranks: np.ndarray = self.head_ranks[kind].mean(-1)
        return ranks

    def at_epoch(self, epoch: int) -> int:
        """Return the position of the snapshot nearest to an epoch."""
        return int(np.abs(self.epochs - epoch).argmin())


def by_init_scale(runs: Runs) -> list[Trained]:
    """Return the runs from the largest initial scale to the smallest."""
    by_scale = by_network(runs)[VIT].by("scale")
    return [Trained(scale, by_scale[scale][min(by_scale[scale])]) for scale in reversed(by_scale)]


def columns_of(vits: list[Trained]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(f"scale {vit.init_scale:g}" for vit in vits)


def scales_of(vits: list[Trained]) -> np.ndarray:
    """Return the initial scales."""
    return np.array([vit.init_scale for vit in vits])


def scale_table(
    title: str, vits: list[Trained], readings: Mapping[str, Callable[[Trained], Cell]]
) -> Table:
    """Return a table with a row for each reading, a column for each initial scale."""
    rows = tuple((name, *map(read, vits)) for name, read in readings.items())
    return Table(("", *columns_of(vits)), rows, title)


def span(values: np.ndarray) -> str:
    """Return "1.1 to 1.3", one number if both look the same, "-" without values."""
    return terminal.span((float(values.min()), float(values.max())) if values.size else None)


def growth(runs: Runs) -> Table:
    """Blocks of 6 whose K-Q rank grows, in the window of B7 and in others."""

    def trends(vit: Trained, start: int, last: int) -> np.ndarray:
        judged = slice(int(np.searchsorted(vit.epochs, start)), last + 1)
        return rank_correlation(vit.epochs[judged], vit.mean_ranks("kq")[judged])

    def grow_at_every_epoch(vit: Trained) -> int:
        epochs = np.arange(1, vit.epochs[vit.window.last] + 0.5)
        ranks = [np.interp(epochs, vit.epochs[1:], block) for block in vit.mean_ranks("kq")[1:].T]
        return growing(rank_correlation(epochs, np.stack(ranks, 1)))

    def failing(vit: Trained) -> str:
        below = np.flatnonzero(trends(vit, 3, vit.window.last) < TREND) + 1
        return ", ".join(f"block {block}" for block in below) or "none"

    return scale_table(
        f"blocks with Spearman(time, stable rank) >= {TREND:g}",
        by_init_scale(runs),
        {
            "from epoch 1, as judged": lambda vit: growing(trends(vit, 1, vit.window.last)),
            "from epoch 3": lambda vit: growing(trends(vit, 3, vit.window.last)),
            "from epoch 3, exceptions": failing,
            "from epoch 1, each epoch counted once": grow_at_every_epoch,
            "from epoch 1 to the end": lambda vit: growing(trends(vit, 1, len(vit.epochs) - 1)),
            "snapshots judged": lambda vit: vit.window.snapshots,
            "of them in epochs 1 to 4": lambda vit: int(
                ((vit.epochs >= 1) & (vit.epochs < 5)).sum()
            ),
        },
    )


def growing(trends: np.ndarray) -> int:
    """Count the correlations that are as high as B7 and B8 ask for."""
    return int((trends >= TREND).sum())


def early_ranks(runs: Runs) -> Table:
    """Stable rank of the change of K-Q by block, and size of the change."""
    vits = by_init_scale(runs)

    def ranks(vit: Trained, epoch: int) -> np.ndarray:
        at_epoch: np.ndarray = vit.mean_ranks("kq")[vit.at_epoch(epoch)]
        return at_epoch

    def window_end(vit: Trained) -> np.ndarray:
        ranks: np.ndarray = vit.mean_ranks("kq")[vit.window.last]
        return ranks

    def counted(blocks: np.ndarray) -> str:
        return out_of(int(blocks.sum()), blocks.size)

    return scale_table(
        f"the first snapshot is at step {int(vits[0].ds['step'][1])}; the window is that of B7",
        vits,
        {
            "rank by block, first snapshot": lambda vit: span(vit.mean_ranks("kq")[1]),
            "epoch 3": lambda vit: span(ranks(vit, 3)),
            "end of training, blocks 1 to 4": lambda vit: span(vit.mean_ranks("kq")[-1, :4]),
            "window ends above epoch 3": lambda vit: counted(window_end(vit) > ranks(vit, 3)),
            "window ends below epoch 1": lambda vit: counted(window_end(vit) < ranks(vit, 1)),
            "|change| / |initial K-Q|, epoch 1": lambda vit: relative_size(vit, 1),
            "epoch 2": lambda vit: relative_size(vit, 2),
            "epochs of the lowest V-O": lowest_vo,
        },
    )


def relative_size(vit: Trained, epoch: int) -> float:
    """Return |change of K-Q|_F over |initial K-Q|_F, mean over heads."""
    change = spectra(vit.ds.isel(step=[vit.at_epoch(epoch)]), "kq", of=CHANGE)[0]
    initial = spectra(vit.ds.isel(step=[0]), "kq", of=INITIAL)[0]
    ratio = (change**2).sum("k") / (initial**2).sum("k")
    return float(np.sqrt(ratio).mean())


def lowest_vo(vit: Trained) -> str:
    """Return the epochs, from 1 on, at which blocks have their lowest rank of V-O."""
    first = vit.window.first
    return span(vit.epochs[first + vit.mean_ranks("vo")[first:].argmin(0)])


def final_ranks(runs: Runs) -> Table:
    """Stable rank of the change at the end by block and initial scale, with standard errors."""
    vits, rows = by_init_scale(runs), list[Row]()
    for kind, name in KINDS.items():
        ends = np.stack([vit.head_ranks[kind][-1] for vit in vits])  # (scale, block, head)
        means, errors = ends.mean(-1), standard_error(ends)
        correlations = rank_correlation(scales_of(vits), means)
        for block, ranks in enumerate(means.T):
            apart = float(ranks[1:].max() - ranks[1:].min())
            values = (*map(float, ranks), float(correlations[block]), apart)
            rows.append((name, str(block + 1), *values, *map(float, errors[1:, block])))
        medians = map(float, np.median(means, axis=1))
        rows.append((name, "median", *medians, *[None] * (1 + len(vits))))
    error_columns = (f"error at {vit.init_scale:g}" for vit in vits[1:])
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
    wait = max(stop_steps(vit.ds) for vit in vits)

    def settled(vit: Trained, kind: Kind) -> np.ndarray:
        ranks: np.ndarray = vit.mean_ranks(kind)[settled_position(vit.ds, wait=wait)]
        return ranks

    readings: dict[str, Callable[[Trained, Kind], np.ndarray]] = {
        "at the end": lambda vit, kind: vit.mean_ranks(kind)[-1],
        "at epoch 126": lambda vit, kind: vit.mean_ranks(kind)[vit.at_epoch(126)],
        "equally settled": settled,
        "effective rank, end": effective_ranks,
    }
    rows: list[Row] = []
    for name, read in readings.items():
        ranks = {kind: np.stack([read(vit, kind) for vit in vits]) for kind in KINDS}
        counts = (growing(rank_correlation(scales_of(vits), ranks[kind])) for kind in KINDS)
        rows.append((name, *counts, *map(span, ranks["kq"])))
    columns = ("read", *KINDS.values(), *(f"K-Q, {column}" for column in columns_of(vits)))
    return Table(columns, tuple(rows), f"blocks with Spearman >= {TREND:g}; ranks by block")


def effective_ranks(vit: Trained, kind: Kind) -> np.ndarray:
    """(block): effective rank of the change at the end, mean over heads."""
    end = products_of(vit.ds.isel(step=[-1]), kind).rankscope.effective_rank(of=CHANGE)
    ranks: np.ndarray = by_head(end.isel(step=0)).mean("head").to_numpy()
    return ranks


def ratios(vit: Trained, kind: Kind) -> np.ndarray:
    """(step, block, head): stable rank of the change over the initial product's."""
    ratio: np.ndarray = vit.head_ranks[kind] / initial_ranks(vit.ds, kind).to_numpy()
    return ratio


def low_ranks(runs: Runs) -> Table:
    """Stable rank of the change over that of the initial product at the end, over heads."""
    return scale_table(
        "stable rank of the change over that of the initial product",
        by_init_scale(runs),
        {
            "K-Q, largest": lambda vit: float(ratios(vit, "kq")[-1].max()),
            "V-O, largest": lambda vit: float(ratios(vit, "vo")[-1].max()),
            "V-O, median": lambda vit: float(np.median(ratios(vit, "vo")[-1])),
            f"V-O, heads above {LOWER:g}": lambda vit: int((ratios(vit, "vo")[-1] > LOWER).sum()),
        },
    )


def exceptions_over_time(runs: Runs) -> Table:
    """Heads whose V-O is above a quarter at initial scale 1, over time."""
    vit = by_init_scale(runs)[0]
    course = ratios(vit, "vo")
    above = course > LOWER
    as_at_end = (above == above[-1]).all((1, 2))
    rows: list[Row] = []
    for position in (vit.at_epoch(epoch) for epoch in (10, 13, 16, 20, 26, 32, 100, 500)):
        blocks = ", ".join(map(str, np.flatnonzero(above[position].any(-1)) + 1)) or "-"
        heads = int(above[position].sum()), blocks, bool(as_at_end[position])
        reached = (
            float(vit.ds[name][position]) for name in ("training_loss", "validation_accuracy")
        )
        rows.append((f"{vit.epochs[position]:g}", *heads, float(course[position].max()), *reached))
    columns = ("epoch", "heads above", "blocks", "as at the end", "largest")
    values, changed = span(course[-1][above[-1]]), np.flatnonzero(~as_at_end)
    since = f"from epoch {vit.epochs[changed[-1] + 1]:g} on" if len(changed) else "all along"
    title = f"above {LOWER:g} at the end: {values}; the same heads {since}"
    return Table((*columns, "training loss", "accuracy"), tuple(rows), title)
