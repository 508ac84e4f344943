"""Claim B7: the stable rank of the change of each head's products grows gradually."""

from collections.abc import Iterator
from dataclasses import replace

import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.papers.boix2023.claims.heads import (
    BLOCKS,
    TREND,
    at_scale_one,
    blocks_that_meet,
    head_means,
    measure_each_run,
)
from rankscope.lab.papers.boix2023.runs import (
    SETTLED,
    Kind,
    growth_start,
    growth_window,
    moment,
)

LEAST_SNAPSHOTS = 3
GROWTH = 1.15  # last rank over the first


def measure_growth(runs: Runs) -> Iterator[Measured]:
    """Ask that the stable rank of the change grows steadily, and by 15%, in 5 of 6 blocks.

    The rank is the mean over heads, at initial scale 1. Steadily: Spearman(epoch, rank) >= 0.8.
    Snapshots count from the first at which the scheduled learning rates sum to 2.5e-3, to the end.
    A collapsed run, or one with fewer than 3 such snapshots, cannot tell. If a head of a block was
    not measured, the block may count either way.
    """
    return measure_each_run(runs, _growth)


def _growth(ds: xr.Dataset, kind: Kind) -> Measured:
    first = growth_start(ds)
    snapshots = 0 if first is None else ds.sizes["step"] - first
    if first is None or snapshots < LEAST_SNAPSHOTS:
        return _too_few(snapshots)
    ranks = head_means(ds, kind).isel(step=slice(first, None))
    trends = rank_correlation(ranks["step"].to_numpy(), ranks.to_numpy())
    growth = (ranks[-1] / ranks[0]).to_numpy()
    rows = [
        {
            "from": moment(ds, first),
            "first rank": ranks_of_block[0],
            "last rank": ranks_of_block[-1],
            "growth": float(grown),
            "Spearman": float(trend),
        }
        for ranks_of_block, grown, trend in zip(
            ranks.T.values.tolist(), growth, trends, strict=True
        )
    ]
    met = (trends >= TREND) & (growth >= GROWTH)
    return blocks_that_meet(met, rows, "rank grows", values=trends + growth)


def _too_few(snapshots: int) -> Measured:
    few = f"has {snapshots} of the {LEAST_SNAPSHOTS} snapshots that it takes in the window"
    return Measured(remarks=(few,))


B7 = Rule(
    claim="B7",
    sentence="in ViTs the stable rank of the change since initialisation grows gradually",
    quantity=(
        f"share of blocks whose stable rank grows {GROWTH:g} times or more, with "
        f"Spearman(epoch, stable rank) >= {TREND:g}"
    ),
    bound=f">= {BLOCKS:.3g}",
    measure=measure_growth,
    needs=at_scale_one,
    table="stable rank of the change, mean over heads, in the window that is judged",
    changed=True,
    reason=(
        "The first rule begins within the dip that the change of a product starts with, and ends "
        "where a single snapshot has a small loss."
    ),
)


def measure_first_growth(runs: Runs) -> Iterator[Measured]:
    """Ask that Spearman(step, stable rank of the change) >= 0.8 in 5 of 6 blocks.

    The rank is the mean over heads. Snapshots count from epoch 1 until the first training loss
    below 1e-3, or until the end. A collapsed run, or one with fewer than 3 such snapshots, cannot
    tell. If a head of a block was not measured, the block may count either way.
    """
    return measure_each_run(runs, _first_growth)


def _first_growth(ds: xr.Dataset, kind: Kind) -> Measured:
    window, ranks = growth_window(ds), head_means(ds, kind)
    if window.snapshots < LEAST_SNAPSHOTS:
        return _too_few(window.snapshots)
    judged = ranks.isel(step=slice(window.first, window.last + 1))
    trends = rank_correlation(judged["step"].to_numpy(), judged.to_numpy())
    rows = [
        {
            "from": moment(ds, window.first),
            "first rank": ranks_of_block[window.first],
            "to": moment(ds, window.last),
            "last rank": ranks_of_block[window.last],
            "rank at the end": ranks_of_block[-1],
            "Spearman": float(trend),
        }
        for ranks_of_block, trend in zip(ranks.T.values.tolist(), trends, strict=True)
    ]
    measured = blocks_that_meet(trends >= TREND, rows, "rank grows", values=trends)
    remarks = () if window.settled else (f"{_unsettled(ds)}: judged to the end",)
    return replace(measured, remarks=remarks)


def _unsettled(ds: xr.Dataset) -> str:
    loss = float(ds["training_loss"][-1])
    return f"ends at training loss {loss:.2g}, never below {SETTLED:g}"


B7_FIRST = Rule(
    claim="B7-first",
    headline="B7",
    sentence=B7.sentence,
    quantity=f"share of blocks whose Spearman(step, stable rank) >= {TREND:g}",
    bound=f">= {BLOCKS:.3g}",
    measure=measure_first_growth,
    needs=runs_of(parameter="scale"),
    table="stable rank of the change, mean over heads, in the window that is judged",
)
