"""Y1, Y2, Y12: singular values that grow, ranks that fall, how far seeds agree."""

import numpy as np
import xarray as xr

from findings.runs import (
    base_run,
    by_column,
    decay_columns,
    decay_table,
    decays,
    shown,
    sweeps,
)
from rankscope.lab.claims.growth import lead_of_large_values, top_decile
from rankscope.lab.claims.ranks import FALL, LEAST_WIDTH, final_ranks, with_values
from rankscope.lab.reading import BASE
from rankscope.lab.verdict import Table


def leads() -> Table:
    """UNet: in how many matrices the top tenth grows faster than the median, by decay."""

    def ahead(ds: xr.Dataset) -> str:
        lead = lead_of_large_values(ds)
        return shown(int((lead > 0).sum()), lead.size)

    return decay_table("matrices whose top tenth grows faster", "unet", {"UNet": ahead})


def trailing() -> Table:
    """UNet without decay: growth of the top tenth and of the median where it is the exception."""
    run = base_run("unet")
    lead = lead_of_large_values(run)
    ends = with_values(run, 2).isel(step=[0, -1])
    growths = [
        each[1] / each[0] - 1
        for each in (ends.rankscope.apply(top_decile), ends.rankscope.apply(_median))
    ]
    rows = [
        (str(name), int(min(top["m"], top["n"])), _percent(top), _percent(median))
        for name in lead["matrix"].to_numpy()[lead.to_numpy() <= 0]
        for top, median in [[growth.sel(matrix=name) for growth in growths]]
    ]
    columns = ("matrix", "singular values", "top tenth grows by", "median grows by")
    return Table(columns, tuple(rows), f"exceptions at decay {BASE['unet']:g}")


def _median(S: np.ndarray) -> np.ndarray:
    return np.asarray(np.median(S, axis=-1))


def _percent(growth: xr.DataArray) -> str:
    return f"{float(growth):.1%}"


def falls() -> Table:
    """Transformer: change of normalised effective rank over training, by decay."""

    def counted(ds: xr.Dataset) -> str:
        change = rank_change(ds)
        return shown(int((change < -FALL).sum()), change.size)

    return decay_table(
        "change of NER over training",
        "lm",
        {
            f"falls by more than {FALL:g}": counted,
            "median change": lambda ds: float(rank_change(ds).median()),
            "largest, that falls least": lambda ds: float(rank_change(ds).max()),
        },
    )


def least_falls() -> Table:
    """Transformer at the base decay: the matrices whose rank falls by 0.01 or less."""
    change = rank_change(base_run("lm"))
    few = change[change.to_numpy() >= -FALL]
    rows = tuple((str(name), float(by)) for name, by in few.to_series().items())
    return Table(("matrix", "change of NER"), rows, f"exceptions at decay {BASE['lm']:g}")


def rank_change(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): NER at the end less that at the start, of matrices that Y2 counts."""
    ends = with_values(ds, LEAST_WIDTH).isel(step=[0, -1])
    ranks: xr.DataArray = ends.rankscope.normalized_effective_rank()
    return ranks[1] - ranks[0]


def seed_ranges() -> Table:
    """VGG: the largest range over seeds of a matrix's final NER, by decay."""
    columns, ranges = decays("vgg"), {}
    for decay in columns:
        runs = [of_seed[decay] for of_seed in sweeps("vgg").values() if decay in of_seed]
        if len(runs) == len(sweeps("vgg")):
            finals = np.stack([final_ranks(ds) for ds in runs])
            ranges[decay] = finals.max(0) - finals.min(0)
    largest = by_column(columns, ranges, lambda each: float(each.max()))
    typical = by_column(columns, ranges, lambda each: float(np.median(each)))
    rows = (("largest", *largest), ("median", *typical))
    return Table(("range of NER", *decay_columns(decays("vgg"))), rows, "over matrices")
