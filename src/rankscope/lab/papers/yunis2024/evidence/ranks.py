"""Y1, Y2, Y12: growth of singular values, change of ranks, and how far seeds agree."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.growth import lead_of_large_values, top_decile
from rankscope.lab.papers.yunis2024.claims.ranks import FALL, LEAST_WIDTH, final_ranks
from rankscope.lab.papers.yunis2024.evidence.runs import (
    base_run,
    by_column,
    decay_columns,
    sweeps_of,
)
from rankscope.lab.papers.yunis2024.runs import BASE, with_values
from rankscope.lab.reporting.evidence import out_of


def unet_leads(runs: Runs) -> Table:
    """UNet: matrices whose top tenth grows faster than the median, by decay."""

    def ahead(ds: xr.Dataset) -> str:
        lead = lead_of_large_values(ds)
        return out_of(int((lead > 0).sum()), lead.size)

    title = "matrices whose top tenth grows faster"
    return sweeps_of(runs, "unet").table(title, {"UNet": ahead})


def unet_exceptions(runs: Runs) -> Table:
    """UNet without decay: matrices whose top tenth grows no faster than the median."""
    ds = base_run(runs, "unet")
    lead = lead_of_large_values(ds)
    ends = with_values(ds, 2).isel(step=[0, -1], matrix=np.flatnonzero(lead <= 0))
    top, median = (
        (values[1] / values[0] - 1).values.tolist()
        for values in (ends.rankscope.apply(top_decile), ends.rankscope.apply(_median))
    )
    rows = tuple(
        (str(name), int(width), f"{top_growth:.1%}", f"{median_growth:.1%}")
        for name, width, top_growth, median_growth in zip(
            ends["matrix"].to_numpy(), np.minimum(ends["m"], ends["n"]), top, median, strict=True
        )
    )
    columns = ("matrix", "singular values", "top tenth grows by", "median grows by")
    return Table(columns, rows, f"exceptions at decay {BASE['unet']:g}")


def _median(S: np.ndarray) -> np.ndarray:
    return np.asarray(np.median(S, axis=-1))


def lm_falls(runs: Runs) -> Table:
    """Transformer: change of normalised effective rank over training, by decay."""

    def falling(ds: xr.Dataset) -> str:
        change = rank_change(ds)
        return out_of(int((change < -FALL).sum()), change.size)

    return sweeps_of(runs, "lm").table(
        "change of NER over training",
        {
            f"matrices that fall by more than {FALL:g}": falling,
            "median change": lambda ds: float(rank_change(ds).median()),
            "largest change": lambda ds: float(rank_change(ds).max()),
        },
    )


def lm_exceptions(runs: Runs) -> Table:
    """Transformer at the base decay: matrices whose rank falls by 0.01 or less."""
    change = rank_change(base_run(runs, "lm"))
    exceptions = change[change.to_numpy() >= -FALL]
    rows = tuple((str(name), float(value)) for name, value in exceptions.to_series().items())
    return Table(("matrix", "change of NER"), rows, f"exceptions at decay {BASE['lm']:g}")


def rank_change(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): NER at the end less NER at the start, for the matrices that Y2 counts."""
    ends = with_values(ds, LEAST_WIDTH).isel(step=[0, -1])
    ranks: xr.DataArray = ends.rankscope.normalized_effective_rank()
    return ranks[1] - ranks[0]


def vgg_seed_ranges(runs: Runs) -> Table:
    """VGG: range of a matrix's final rank over seeds, by decay."""
    vgg, ranges = sweeps_of(runs, "vgg"), {}
    for decay in vgg.decays:
        seeds = [sweep[decay] for sweep in vgg.by_seed.values() if decay in sweep]
        if len(seeds) == len(vgg.by_seed):
            ranks = np.stack([final_ranks(ds) for ds in seeds])
            ranges[decay] = ranks.max(0) - ranks.min(0)
    rows = (
        ("largest", *by_column(vgg.decays, ranges, lambda values: float(values.max()))),
        ("median", *by_column(vgg.decays, ranges, lambda values: float(np.median(values)))),
    )
    return Table(("range of NER", *decay_columns(vgg.decays)), rows, "over matrices")
