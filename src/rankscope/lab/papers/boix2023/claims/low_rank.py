"""Claim B9: the change of each head's products is far lower in rank than they were at the start."""

from collections.abc import Iterator
from functools import partial

import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.tally import count
from rankscope.lab.papers.boix2023.claims.heads import (
    at_scale_one,
    measure_each_run,
    share_of_all,
)
from rankscope.lab.papers.boix2023.runs import Kind, change_ranks, initial_ranks

LOWER = 0.25  # of the initial product's stable rank
LOWER_VALUES = 1 / 3  # the same for V-O, of which the paper shows nothing
HEADS = 0.95  # share of heads
KEYS: tuple[Kind, ...] = ("kq",)
VALUES: tuple[Kind, ...] = ("vo",)


def measure_low_rank(runs: Runs) -> Iterator[Measured]:
    """Ask that the change has at most 0.25 of the initial product's stable rank in 95% of heads.

    The change is read at the end of training. Runs that collapsed cannot tell. If a head was not
    measured, it may count either way.
    """
    return measure_each_run(runs, partial(_low_rank, lower=LOWER))


def measure_low_rank_of_keys(runs: Runs) -> Iterator[Measured]:
    """Ask the same as the first rule of K-Q alone, at initial scale 1, the paper's default."""
    return measure_each_run(runs, partial(_low_rank, lower=LOWER), kinds=KEYS)


def measure_low_rank_of_values(runs: Runs) -> Iterator[Measured]:
    """Ask that the change of V-O has at most a third of the initial rank, in 95% of heads.

    The initial scale is 1. The rest is as for K-Q.
    """
    return measure_each_run(runs, partial(_low_rank, lower=LOWER_VALUES), kinds=VALUES)


def _low_rank(ds: xr.Dataset, kind: Kind, *, lower: float) -> Measured:
    change, initial = change_ranks(ds.isel(step=[-1]), kind)[0], initial_ranks(ds, kind)
    ratio = change / initial  # (block, head)
    flat = ratio.stack(place=("block", "head"))
    names = [f"{block}.{head}" for block, head in flat["place"].to_numpy()]
    by_name = xr.DataArray(flat.to_numpy(), dims="head", coords={"head": names})
    tally = count(by_name <= lower, measured=by_name)
    rows = tuple(
        {
            "block": int(block),
            "rank of the change": float(change.sel(block=block).mean("head")),
            "rank at the start": float(initial.sel(block=block).mean("head")),
            "largest ratio of a head": float(ratio.sel(block=block).max("head")),
        }
        for block in ratio["block"].to_numpy()
    )
    value, met = share_of_all(tally, HEADS)
    return Measured(value, met, rows=rows, tallies={"block.head, change of low rank": tally})


B9 = Rule(
    claim="B9",
    sentence="the change is far lower in rank than the product it starts from",
    quantity=f"share of heads whose change of K-Q has <= {LOWER:g} of the initial stable rank",
    bound=f">= {HEADS:g}",
    measure=measure_low_rank_of_keys,
    needs=at_scale_one,
    table="stable rank of the change at the end and of the initial product, mean over heads",
    changed=True,
    reason="The first rule also asks it of V-O and of smaller scales, which the paper's figure "
    "does not show.",
)
B9_VALUES = Rule(
    claim="B9-VO",
    sentence="the change of V-O, too, is far lower in rank than the product it starts from",
    quantity="share of heads whose change of V-O has <= 1/3 of the initial stable rank",
    bound=f">= {HEADS:g}",
    measure=measure_low_rank_of_values,
    needs=at_scale_one,
    table=B9.table,
    changed=True,
    ours=True,
)
B9_FIRST = Rule(
    claim="B9-first",
    headline="B9",
    sentence=B9.sentence,
    quantity=f"share of heads whose change has <= {LOWER:g} of the initial stable rank",
    bound=f">= {HEADS:g}",
    measure=measure_low_rank,
    needs=runs_of(parameter="scale"),
    table=B9.table,
)
