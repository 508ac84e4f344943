"""Claims B7-B9 on vision transformers: the change of each head's products has low rank.

K-Q and V-O are judged apart. B7 and B9 judge each initial scale by itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.tally import Tally, count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.runs import (
    KINDS,
    SETTLED,
    Kind,
    by_network,
    change_ranks,
    growth_window,
    initial_ranks,
    moment,
    settled_position,
    stop_of,
    stop_steps,
)
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

BLOCKS = 5 / 6  # share of blocks in which a trend has to be seen
TREND = 0.8  # Spearman
LEAST_SNAPSHOTS = 3
LEAST_SCALES = 3
LOWER = 0.25  # of the initial product's stable rank
HEADS = 0.95  # share of heads


def several_init_scales(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the networks that are declared at enough initial scales for a trend."""
    scaled = [key for key in keys if "scale" in key.variant]
    init_scales = Counter((key.experiment, key.network) for key in scaled)
    return [key for key in scaled if init_scales[key.experiment, key.network] >= LEAST_SCALES]


def measure_growth(runs: Runs) -> Iterator[Measured]:
    """Ask that Spearman(step, stable rank of the change) >= 0.8 in 5 of 6 blocks.

    The rank is the mean over heads. Snapshots count from epoch 1 until the first training loss
    below 1e-3, or until the end. A collapsed run, or one with fewer than 3 such snapshots, cannot
    tell. If a head of a block was not measured, the block may count either way.
    """
    return _measure_each_run(runs, _growth)


def _growth(ds: xr.Dataset, kind: Kind) -> Measured:
    window, ranks = growth_window(ds), _head_means(ds, kind)
    if window.snapshots < LEAST_SNAPSHOTS:
        count_in_window = f"{window.snapshots} of the {LEAST_SNAPSHOTS} snapshots that it takes"
        return Measured(remarks=(f"has {count_in_window} in the window",))
    judged = ranks.isel(step=slice(window.first, window.last + 1))
    rows = [
        {
            "from": moment(ds, window.first),
            "first rank": ranks_of_block[window.first],
            "to": moment(ds, window.last),
            "last rank": ranks_of_block[window.last],
            "rank at the end": ranks_of_block[-1],
        }
        for ranks_of_block in ranks.T.values.tolist()
    ]
    measured = _measured_trends(judged["step"].to_numpy(), judged, rows, "rank grows")
    remarks = () if window.settled else (f"{_unsettled(ds)}: judged to the end",)
    return replace(measured, remarks=remarks)


B7 = Rule(
    claim="B7",
    sentence="in ViTs the stable rank of the change since initialisation grows gradually",
    quantity=f"share of blocks whose Spearman(step, stable rank) >= {TREND:g}",
    bound=f">= {BLOCKS:.3g}",
    measure=measure_growth,
    needs=runs_of(parameter="scale"),
    table="stable rank of the change, mean over heads, in the window that is judged",
)


# Returns the position of the snapshot at which a run is read, and a remark on it. The int is the
# number of steps that stopped runs of the network trained after their loss settled.
Read = Callable[[xr.Dataset, int], tuple[int, str]]


def at_end(ds: xr.Dataset, wait: int) -> tuple[int, str]:
    """Read a run at its last snapshot."""
    return ds.sizes["step"] - 1, ""


def once_settled(ds: xr.Dataset, wait: int) -> tuple[int, str]:
    """Read a run at the first snapshot `wait` steps or more after its loss is below 1e-3.

    A run that never settles, or ends before, is read at its end.
    """
    position = settled_position(ds, wait=wait)
    if not growth_window(ds).settled:
        return position, f"{_unsettled(ds)}: read at its end"
    return position, f"is read at {moment(ds, position)}"


def measure_ranks_by_scale(runs: Runs, *, read: Read = at_end) -> Iterator[Measured]:
    """Ask that Spearman(initial scale, stable rank of the change) >= 0.8 in 5 of 6 blocks.

    The rank is the mean over heads. It takes 3 scales that did not collapse. Blocks that could not
    be measured are treated as in B7.
    """
    for network, of_network in by_network(runs).items():
        by_init_scale = of_network.by("scale")
        for kind, part in KINDS.items():
            for seed in of_network.seeds:
                at_scales = {init_scale: seeds[seed] for init_scale, seeds in by_init_scale.items()}
                measured = _trend_over_scales(at_scales, kind, read)
                yield _placed(measured, network, seed, part)


def _trend_over_scales(at_scales: Mapping[float, xr.Dataset], kind: Kind, read: Read) -> Measured:
    """Measure one seed. Scales that collapsed are shown in the table and not in the trend."""
    wait = max(map(stop_steps, at_scales.values()))
    ranks_by_scale, in_trend, remarks = dict[float, xr.DataArray](), list[float](), list[str]()
    for init_scale, ds in at_scales.items():
        position, remark = read(ds, wait)
        ranks_by_scale[init_scale] = _head_means(ds.isel(step=[position]), kind)[0]
        if reason := collapsed(ds):
            remark = f"collapsed: {reason}"
        else:
            in_trend.append(init_scale)
        remarks += [f"at scale {init_scale:g} {text}" for text in (remark, stop_of(ds)) if text]
    if len(in_trend) < LEAST_SCALES:
        few = f"has {len(in_trend)} of the {LEAST_SCALES} scales that it takes"
        return Measured(remarks=(*remarks, few))
    together = xr.concat([ranks_by_scale[init_scale] for init_scale in in_trend], "scale")
    rows = [
        {
            f"rank at scale {init_scale:g}": float(ranks.sel(block=block))
            for init_scale, ranks in ranks_by_scale.items()
        }
        for block in together["block"].to_numpy()
    ]
    measured = _measured_trends(np.array(in_trend), together, rows, "rank grows with scale")
    return replace(measured, remarks=tuple(remarks))


B8 = Rule(
    claim="B8",
    sentence="the smaller the initial scale, the lower the stable rank of the change",
    quantity=f"share of blocks whose Spearman(scale, final stable rank) >= {TREND:g}",
    bound=f">= {BLOCKS:.3g}",
    measure=measure_ranks_by_scale,
    needs=several_init_scales,
    table="stable rank of the change at the end, mean over heads, by initial scale",
)
B8_SETTLED = replace(
    B8,
    claim="B8-settled",
    headline="B8",
    quantity=f"share of blocks whose Spearman(scale, settled stable rank) >= {TREND:g}",
    measure=partial(measure_ranks_by_scale, read=once_settled),
    table="stable rank of the change once settled, mean over heads, by initial scale",
    reason=(
        "Made before any run of the paper's size was judged: B8 reads every run at its end. Scale "
        "1 trains on after its loss settled for longer than the runs that are stopped."
    ),
)


def measure_low_rank(runs: Runs) -> Iterator[Measured]:
    """Ask that the change has at most 0.25 of the initial product's stable rank in 95% of heads.

    The change is read at the end of training. Runs that collapsed cannot tell. Heads that could not
    be measured are treated as blocks are in B7.
    """
    return _measure_each_run(runs, _low_rank)


def _low_rank(ds: xr.Dataset, kind: Kind) -> Measured:
    change, initial = change_ranks(ds.isel(step=[-1]), kind)[0], initial_ranks(ds, kind)
    ratio = change / initial  # (block, head)
    flat = ratio.stack(place=("block", "head"))
    names = [f"{block}.{head}" for block, head in flat["place"].to_numpy()]
    by_name = xr.DataArray(flat.to_numpy(), dims="head", coords={"head": names})
    tally = count(by_name <= LOWER, measured=by_name)
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
    quantity=f"share of heads whose change has <= {LOWER:g} of the initial stable rank",
    bound=f">= {HEADS:g}",
    measure=measure_low_rank,
    needs=runs_of(parameter="scale"),
    table="stable rank of the change at the end and of the initial product, mean over heads",
)

RULES = (B7, B8, B8_SETTLED, B9)


def share_of_all(tally: Tally, least: float) -> tuple[float | None, bool | None]:
    """Return the share of all names known to meet the bound, and whether it is at least `least`.

    Names that cannot tell may be either: the outcome is None if it depends on them.
    """
    if not tally.counted:
        return None, None
    met, unknown = len(tally.counted) - len(tally.exceptions), len(tally.unknown)
    total = len(tally.counted) + unknown
    if met / total >= least:
        return met / total, True
    possible = (met + unknown) / total >= least
    return met / total, None if possible else False


def _measure_each_run(
    runs: Runs, measure_run: Callable[[xr.Dataset, Kind], Measured]
) -> Iterator[Measured]:
    """Measure every run and kind of product by itself; a run that collapsed cannot tell."""
    for key in runs:
        for kind, part in KINDS.items():
            for seed, ds in runs[key].items():
                measured = measure_run(ds, kind)
                if reason := collapsed(ds):
                    rows = tuple({**row, "note": "collapsed"} for row in measured.rows)
                    measured = Measured(rows=rows, remarks=(f"is left out: {reason}",))
                remarks = tuple(filter(None, (stop_of(ds), *measured.remarks)))
                measured = replace(measured, variant=key.variant, remarks=remarks)
                yield _placed(measured, key, seed, part)


def _placed(measured: Measured, key: RunKey, seed: int, part: str) -> Measured:
    """Return the measurement with its place, which its remarks name too."""
    title = f"{key.experiment}: {key.title}, seed {seed}"
    remarks = tuple(f"{title} {remark}" for remark in measured.remarks)
    return replace(measured, remarks=remarks).at(key, seed, part=part)


def _unsettled(ds: xr.Dataset) -> str:
    loss = float(ds["training_loss"][-1])
    return f"ends at training loss {loss:.2g}, never below {SETTLED:g}"


def _head_means(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Return mean stable ranks (step, block); NaN if one head could not be measured."""
    return change_ranks(ds, kind).mean("head", skipna=False)


def _measured_trends(
    x: np.ndarray, ranks: xr.DataArray, rows: Sequence[Mapping[str, Cell]], part_of_rule: str
) -> Measured:
    """Count the blocks in which Spearman's correlation of x with the ranks (x, block) is high.

    rows: one for each block.
    """
    trends = rank_correlation(x, ranks.to_numpy())
    blocks = range(1, len(trends) + 1)
    by_name = xr.DataArray(trends, dims="block", coords={"block": [f"block {i}" for i in blocks]})
    tally = count(by_name >= TREND, measured=by_name)
    value, met = share_of_all(tally, BLOCKS)
    numbered = tuple(
        {"block": block, **row, "Spearman": trend}
        for block, row, trend in zip(blocks, rows, trends.tolist(), strict=True)
    )
    return Measured(value, met, numbered, {part_of_rule: tally})
