"""Claim B8: the smaller the initial scale, the lower the rank of the change."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.claims.heads import (
    BLOCKS,
    TREND,
    blocks_that_meet,
    placed,
)
from rankscope.lab.papers.boix2023.runs import (
    KINDS,
    Kind,
    by_network,
    change_effective_ranks,
    change_ranks,
    stop_of,
)
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

LEAST_SCALES = 3
LOWER = 0.85  # of the stable rank at scale 1, at the smallest scale

# Mean over heads of each block's rank at the end, by initial scale, ascending.
Ranks = dict[float, np.ndarray]


def several_init_scales(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the networks that are declared at enough initial scales for a trend."""
    scaled = [key for key in keys if "scale" in key.variant]
    init_scales = Counter((key.experiment, key.network) for key in scaled)
    return [key for key in scaled if init_scales[key.experiment, key.network] >= LEAST_SCALES]


def measure_ranks_by_scale(runs: Runs) -> Iterator[Measured]:
    """Ask that the rank of the change falls with the initial scale, in 5 of 6 blocks.

    Ranks are means over heads at the end of a run. The stable rank at the smallest scale has to be
    at most 0.85 of that at scale 1, and Spearman(scale, effective rank) at least 0.8. It takes 3
    scales that did not collapse, scale 1 among them. If a head of a block was not measured, the
    block may count either way.
    """
    return _measure_each_seed(runs, _fall_with_scale)


def _fall_with_scale(at_scales: Mapping[float, xr.Dataset], kind: Kind) -> Measured:
    stable = _final(change_ranks, at_scales, kind)
    effective = _final(change_effective_ranks, at_scales, kind)
    in_trend = [init_scale for init_scale, ds in at_scales.items() if not collapsed(ds)]
    if few := _too_few(in_trend):
        return few
    if 1 not in in_trend:
        return Measured(remarks=("has no run at scale 1 that did not collapse",))
    share = stable[min(in_trend)] / stable[1]
    trends = _trends(effective, in_trend)
    rows = [
        {
            **_row(stable, block, "stable rank"),
            "smallest over scale 1": float(share[block]),
            **_row(effective, block, "effective rank"),
            "Spearman": float(trends[block]),
        }
        for block in range(len(trends))
    ]
    met = (share <= LOWER) & (trends >= TREND)
    return blocks_that_meet(met, rows, "rank grows with scale", values=share + trends)


def _measure_each_seed(
    runs: Runs, measure_scales: Callable[[Mapping[float, xr.Dataset], Kind], Measured]
) -> Iterator[Measured]:
    """Measure all scales of every network, kind of product and seed together."""
    for network, of_network in by_network(runs).items():
        by_init_scale = of_network.by("scale")
        for kind, part in KINDS.items():
            for seed in of_network.seeds:
                at_scales = {init_scale: seeds[seed] for init_scale, seeds in by_init_scale.items()}
                measured = measure_scales(at_scales, kind)
                remarks = (*_remarks(at_scales), *measured.remarks)
                yield placed(replace(measured, remarks=remarks), network, seed, part)


def _remarks(at_scales: Mapping[float, xr.Dataset]) -> Iterator[str]:
    """Yield sentences on the runs that collapsed or were stopped."""
    for init_scale, ds in at_scales.items():
        reason = collapsed(ds)
        for text in (f"collapsed: {reason}" if reason else "", stop_of(ds)):
            if text:
                yield f"at scale {init_scale:g} {text}"


def _final(
    ranks: Callable[[xr.Dataset, Kind], xr.DataArray],
    at_scales: Mapping[float, xr.Dataset],
    kind: Kind,
) -> Ranks:
    """Return the ranks at the end of every run; NaN if a head of the block was not measured."""
    ends = {init_scale: ds.isel(step=[-1]) for init_scale, ds in at_scales.items()}
    return {
        init_scale: ranks(ds, kind)[0].mean("head", skipna=False).to_numpy()
        for init_scale, ds in ends.items()
    }


def _too_few(in_trend: Sequence[float]) -> Measured | None:
    if len(in_trend) >= LEAST_SCALES:
        return None
    few = f"has {len(in_trend)} of the {LEAST_SCALES} scales that it takes"
    return Measured(remarks=(few,))


def _trends(ranks: Ranks, in_trend: Sequence[float]) -> np.ndarray:
    """Return Spearman(scale, rank) of every block."""
    together = np.stack([ranks[init_scale] for init_scale in in_trend])
    return rank_correlation(np.array(in_trend), together)


def _row(ranks: Ranks, block: int, name: str) -> dict[str, Cell]:
    return {
        f"{name} at scale {init_scale:g}": float(of_blocks[block])
        for init_scale, of_blocks in ranks.items()
    }


B8 = Rule(
    claim="B8",
    sentence="the smaller the initial scale, the lower the stable rank of the change",
    quantity=(
        f"share of blocks whose stable rank at the smallest scale is <= {LOWER:g} of that at scale "
        f"1, with Spearman(scale, final effective rank) >= {TREND:g}"
    ),
    bound=f">= {BLOCKS:.3g}",
    measure=measure_ranks_by_scale,
    needs=several_init_scales,
    table="ranks of the change at the end, mean over heads, by initial scale",
    changed=True,
    reason="The first rule orders stable ranks that are close to 1, their lowest value, already.",
)


def measure_first_ranks_by_scale(runs: Runs) -> Iterator[Measured]:
    """Ask that Spearman(initial scale, stable rank of the change) >= 0.8 in 5 of 6 blocks.

    The rank is the mean over heads at the end of a run. It takes 3 scales that did not collapse. If
    a head of a block was not measured, the block may count either way.
    """
    return _measure_each_seed(runs, _trend_over_scales)


def _trend_over_scales(at_scales: Mapping[float, xr.Dataset], kind: Kind) -> Measured:
    """Measure one seed. Scales that collapsed are shown in the table and not in the trend."""
    stable = _final(change_ranks, at_scales, kind)
    in_trend = [init_scale for init_scale, ds in at_scales.items() if not collapsed(ds)]
    if few := _too_few(in_trend):
        return few
    trends = _trends(stable, in_trend)
    rows = [
        {**_row(stable, block, "rank"), "Spearman": float(trend)}
        for block, trend in enumerate(trends)
    ]
    return blocks_that_meet(trends >= TREND, rows, "rank grows with scale", values=trends)


B8_FIRST = Rule(
    claim="B8-first",
    headline="B8",
    sentence=B8.sentence,
    quantity=f"share of blocks whose Spearman(scale, final stable rank) >= {TREND:g}",
    bound=f">= {BLOCKS:.3g}",
    measure=measure_first_ranks_by_scale,
    needs=several_init_scales,
    table="stable rank of the change at the end, mean over heads, by initial scale",
)
