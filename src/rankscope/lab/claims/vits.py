"""Claims B7-B9 of boix2023 on vision transformers: the change of each head's products has low rank.

K-Q and V-O are judged apart. For B7 and B9 each initial scale is a network of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from rankscope.lab.claims.scale_runs import Rule, Seen, judge_each, judge_seen, share_of_all
from rankscope.lab.claims.sweeps import rank_correlation
from rankscope.lab.claims.tally import count
from rankscope.lab.experiment import Claim, Results
from rankscope.lab.heads import (
    KINDS,
    SETTLED,
    Kind,
    change_ranks,
    growth_window,
    initial_ranks,
    moment,
    networks,
    scales,
    settled_position,
    stop_of,
    stop_steps,
)
from rankscope.lab.reading import Seeds, collapsed
from rankscope.lab.verdict import Cell, Verdict

BLOCKS = 5 / 6  # share of blocks in which a trend has to be seen
TREND = 0.8  # Spearman
LEAST_SNAPSHOTS = 3
LEAST_SCALES = 3
LOWER = 0.25  # of the initial product's stable rank
HEADS = 0.95  # share of heads


GROWTH = Rule(
    claim="B7",
    sentence="in vision transformers the stable rank of the change from the start grows gradually",
    bound=f">= {BLOCKS:.3g}",
    quantity=f"share of blocks whose Spearman(step, stable rank) >= {TREND:g}",
    part="rank grows",
    columns=("judged from", "rank", "to", "rank", "rank at the end", "Spearman"),
    title="stable rank of the change, mean over heads, in the window that is judged",
)
START = Rule(
    claim="B8",
    sentence="the smaller the initial scale, the lower the stable rank of the change",
    bound=f">= {BLOCKS:.3g}",
    quantity=f"share of blocks whose Spearman(scale, final stable rank) >= {TREND:g}",
    part="rank grows with scale",
    columns=("Spearman",),  # and one for each scale
    title="stable rank of the change at the end, mean over heads, by initial scale",
)
SETTLED_START = replace(
    START,
    claim="B8-settled",
    quantity=f"share of blocks whose Spearman(scale, settled stable rank) >= {TREND:g}",
    title="stable rank of the change once settled, mean over heads, by initial scale",
    evidence=(
        "a second rule, made before any run of the paper's size was judged: B8 reads every run at "
        "its end, which for scale 1 is longer after it settled than for runs that were stopped",
    ),
)
LOW_RANK = Rule(
    claim="B9",
    sentence="the change is far lower in rank than the initial product",
    bound=f">= {HEADS:g}",
    quantity=f"share of heads whose change has <= {LOWER:g} of the initial stable rank",
    part="block.head, change of low rank",
    columns=("rank of the change", "rank at the start", "largest ratio of a head"),
    title="stable rank of the change at the end and of the initial product, mean over heads",
)


def change_grows_in_rank(results: Results) -> Verdict:
    """B7. In vision transformers the stable rank of the change from the start grows gradually.

    Yes: Spearman(step, head-mean stable rank of the change) >= 0.8 in >= 5 of 6 blocks, over the
    snapshots from epoch 1 until the training loss is below 1e-3, that one included, or until the
    end. A block with less than 3 snapshots there cannot tell.
    """
    return judge_each(GROWTH, results, _see_growth)


def smaller_start_lower_rank(results: Results) -> Verdict:
    """B8. The smaller the initial scale, the lower the stable rank of the change.

    Yes: Spearman(scale, head-mean stable rank at the end) >= 0.8 in >= 5 of 6 blocks. It takes 3
    scales that did not collapse.
    """
    return _judge_scales(START, results, lambda ds, _: (ds.sizes["step"] - 1, ""))


def smaller_start_lower_settled_rank(results: Results) -> Verdict:
    """B8-settled, a second rule: B8 with every scale read equally long after it settled.

    The smaller scales stop some steps after their training loss is below 1e-3, while scale 1 trains
    on, so B8 compares trainings of different lengths. Here every scale is read at the first
    snapshot that is as many steps after its loss is below 1e-3 as the stopped runs of its network
    declare; one whose loss never is, or that ends before, is read at its end.
    """
    return _judge_scales(SETTLED_START, results, _read_settled)


def change_has_low_rank(results: Results) -> Verdict:
    """B9. The change is far lower in rank than the initial product.

    Yes: at the end the stable rank of the change is <= 0.25 of the initial product's in >= 95% of
    heads.
    """
    return judge_each(LOW_RANK, results, _see_low_rank)


CLAIMS: dict[str, Claim] = {
    "B7": change_grows_in_rank,
    "B8": smaller_start_lower_rank,
    "B8-settled": smaller_start_lower_settled_rank,
    "B9": change_has_low_rank,
}


def _see_growth(ds: xr.Dataset, kind: Kind) -> Seen:
    window, ranks = growth_window(ds), _head_means(ds, kind)
    if window.snapshots < LEAST_SNAPSHOTS:
        few = (
            f"has {window.snapshots} of the {LEAST_SNAPSHOTS} snapshots that it takes in the window"
        )
        return Seen((None, None), remarks=(few,))
    judged = ranks.isel(step=slice(window.first, window.last + 1))
    trends = _trends(judged["step"].to_numpy(), judged)
    first, last = (moment(ds, position) for position in (window.first, window.last))
    blocks = tuple(
        (block, first, of[window.first], last, of[window.last], of[-1], rho)
        for block, of, rho in zip(_numbers(ranks), ranks.T.values.tolist(), trends, strict=True)
    )
    remarks = () if window.settled else (f"{_unsettled(ds)}: judged to the end",)
    return _seen_trends(trends, blocks, remarks)


def _unsettled(ds: xr.Dataset) -> str:
    loss = float(ds["training_loss"][-1])
    return f"ends at training loss {loss:.2g}, never below {SETTLED:g}"


# The position of the snapshot at which a run is read, and a remark on it. The number is the steps
# for which the stopped runs of its network went on after their loss had settled.
Reading = Callable[[xr.Dataset, int], tuple[int, str]]


def _read_settled(ds: xr.Dataset, wait: int) -> tuple[int, str]:
    position = settled_position(ds, wait=wait)
    if not growth_window(ds).settled:
        return position, f"{_unsettled(ds)}: read at its end"
    return position, f"is read at {moment(ds, position)}"


def _judge_scales(rule: Rule, results: Results, read: Reading) -> Verdict:
    sweeps = {network: scales(results, network) for network in networks(results)}
    every = sorted({scale for runs in sweeps.values() for scale in runs})
    rule = replace(rule, columns=("Spearman", *(f"at scale {scale:g}" for scale in every)))
    found = {
        f"{network}, {shown}": {
            seed: _see_scales(network, seed, kind, runs, every, read) for seed in _seeds(runs)
        }
        for network, runs in sweeps.items()
        for kind, shown in KINDS.items()
    }
    return judge_seen(rule, found)


def _see_scales(
    network: str,
    seed: int,
    kind: Kind,
    runs: Mapping[float, Seeds],
    every: Sequence[float],
    read: Reading,
) -> Seen:
    """Every scale that the seed was run at; those that collapsed stand in the table alone."""
    there = {scale: of[seed] for scale, of in runs.items() if seed in of}
    reasons = {scale: collapsed(ds) for scale, ds in there.items()}
    wait = max(stop_steps(ds) for ds in there.values())
    read_at = {scale: read(ds, wait) for scale, ds in there.items()}
    finals = {
        scale: _head_means(ds.isel(step=[read_at[scale][0]]), kind)[0]
        for scale, ds in there.items()
    }
    counted = [scale for scale in there if not reasons[scale]]
    remarks = tuple(
        f"{network} at scale {scale:g}, seed {seed} {remark}"
        for scale, ds in there.items()
        for remark in (
            f"collapsed: {reasons[scale]}" if reasons[scale] else read_at[scale][1],
            stop_of(ds),
        )
        if remark
    )
    if len(counted) < LEAST_SCALES:
        few = (
            f"{network}, seed {seed} has {len(counted)} of the {LEAST_SCALES} scales that it takes"
        )
        return Seen((None, None), remarks=(*remarks, few))
    together = xr.concat([finals[scale] for scale in counted], "scale")
    trends = _trends(np.array(counted), together)
    blocks = tuple(
        (block, rho, *(float(finals[scale][i]) if scale in finals else None for scale in every))
        for i, (block, rho) in enumerate(zip(_numbers(together), trends, strict=True))
    )
    return _seen_trends(trends, blocks, remarks)


def _see_low_rank(ds: xr.Dataset, kind: Kind) -> Seen:
    change, initial = change_ranks(ds.isel(step=[-1]), kind)[0], initial_ranks(ds, kind)
    ratio = change / initial
    every = ratio.stack(each=("block", "head"))
    names = [f"{block}.{head}" for block, head in every["each"].to_numpy()]
    flat = xr.DataArray(every.to_numpy(), dims="head", coords={"head": names})
    tally = count(flat <= LOWER, measured=flat)
    means = (each.to_numpy().tolist() for each in (change.mean("head"), initial.mean("head")))
    worst = ratio.max("head").to_numpy().tolist()
    blocks = tuple(zip(_numbers(ratio), *means, worst, strict=True))
    return Seen(share_of_all(tally, HEADS), blocks, tally)


def _head_means(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """(step, block); NaN where one head could not be measured."""
    return change_ranks(ds, kind).mean("head", skipna=False)


def _trends(x: np.ndarray, ranks: xr.DataArray) -> list[float]:
    """Spearman's correlation of x with the ranks (x, block) of every block."""
    found: list[float] = rank_correlation(x, ranks.to_numpy()).tolist()
    return found


def _seen_trends(
    trends: Sequence[float], blocks: tuple[tuple[Cell, ...], ...], remarks: tuple[str, ...]
) -> Seen:
    names = [f"block {block}" for block, *_ in blocks]
    measured = xr.DataArray(np.array(trends), dims="block", coords={"block": names})
    tally = count(measured >= TREND, measured=measured)
    return Seen(share_of_all(tally, BLOCKS), blocks, tally, remarks)


def _numbers(values: xr.DataArray) -> list[int]:
    numbers: list[int] = values["block"].to_numpy().tolist()
    return numbers


def _seeds(runs: Mapping[float, Seeds]) -> list[int]:
    """Of any scale."""
    return sorted({seed for of in runs.values() for seed in of})
