"""Shares of blocks and heads of vision transformers, as claims B7-B9 count them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.tally import Tally, count
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.runs import KINDS, Kind, change_ranks, stop_of
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

BLOCKS = 5 / 6  # share of blocks in which a trend has to be seen
TREND = 0.8  # Spearman


def at_scale_one(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the runs at initial scale 1, the default."""
    return [key for key in keys if key.variant.get("scale") == 1]


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


def measure_each_run(
    runs: Runs,
    measure_run: Callable[[xr.Dataset, Kind], Measured],
    *,
    kinds: Sequence[Kind] = tuple(KINDS),
) -> Iterator[Measured]:
    """Measure every run and kind of product by itself; a run that collapsed cannot tell."""
    for key in runs:
        for kind in kinds:
            for seed, ds in runs[key].items():
                measured = measure_run(ds, kind)
                if reason := collapsed(ds):
                    rows = tuple({**row, "note": "collapsed"} for row in measured.rows)
                    measured = Measured(rows=rows, remarks=(f"is left out: {reason}",))
                remarks = tuple(filter(None, (stop_of(ds), *measured.remarks)))
                measured = replace(measured, variant=key.variant, remarks=remarks)
                yield placed(measured, key, seed, KINDS[kind])


def placed(measured: Measured, key: RunKey, seed: int, part: str) -> Measured:
    """Return the measurement with its place, which its remarks name too."""
    title = f"{key.experiment}: {key.title}, seed {seed}"
    remarks = tuple(f"{title} {remark}" for remark in measured.remarks)
    return replace(measured, remarks=remarks).at(key, seed, part=part)


def head_means(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Return mean stable ranks (step, block); NaN if one head could not be measured."""
    return change_ranks(ds, kind).mean("head", skipna=False)


def blocks_that_meet(
    met: np.ndarray,
    rows: Sequence[Mapping[str, Cell]],
    part_of_rule: str,
    *,
    values: np.ndarray,
) -> Measured:
    """Count the blocks that meet a condition, and compare their share with 5/6.

    met: whether each block does. values: what was measured, NaN where a block cannot tell.
    rows: one for each block.
    """
    numbers = range(1, len(met) + 1)
    coords = {"block": [f"block {number}" for number in numbers]}
    by_name, known = (xr.DataArray(array, coords, dims="block") for array in (met, values))
    tally = count(by_name, measured=known)
    value, enough = share_of_all(tally, BLOCKS)
    numbered = tuple({"block": number, **row} for number, row in zip(numbers, rows, strict=True))
    return Measured(value, enough, numbered, {part_of_rule: tally})
