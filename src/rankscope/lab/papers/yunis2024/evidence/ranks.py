"""Y1, Y2, Y8, Y9, Y12: singular values and ranks over training."""

import math

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.grokking import SPACING, crossing, mean_rank, steepest
from rankscope.lab.papers.yunis2024.claims.growth import lead_of_large_values
from rankscope.lab.papers.yunis2024.claims.labels import RANDOM, TRUE, middle
from rankscope.lab.papers.yunis2024.claims.ranks import FALL, LEAST_WIDTH, final_ranks
from rankscope.lab.papers.yunis2024.evidence.runs import by_column, decay_columns, sweeps_of
from rankscope.lab.papers.yunis2024.runs import with_values
from rankscope.lab.reporting.evidence import Row, out_of


def unet_leads(runs: Runs) -> Table:
    """UNet: matrices whose top tenth grows faster than the median, by decay."""

    def ahead(ds: xr.Dataset) -> str:
        lead = lead_of_large_values(ds)
        return out_of(int((lead > 0).sum()), lead.size)

    title = "matrices whose top tenth grows faster"
    return sweeps_of(runs, "unet").table(title, {"UNet": ahead})


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


def rank_change(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): NER at the end less NER at the start, for the matrices that Y2 counts."""
    ends = with_values(ds, LEAST_WIDTH).isel(step=[0, -1])
    ranks: xr.DataArray = ends.rankscope.normalized_effective_rank()
    return ranks[1] - ranks[0]


def label_spectra(runs: Runs) -> Table:
    """MLP: singular values of the middle layers at the start and at the end."""
    rows: list[Row] = []
    by_labels = runs.of("mlp").by("labels")
    for labels in (TRUE, RANDOM):
        for seed, ds in by_labels[labels].items():
            for S in middle(ds)["singular_values"].transpose("matrix", "step", "k"):
                start, end = S.values[0], S.values[-1]
                medians = float(np.median(start)), float(np.median(end))
                leading = map(float, (start[0], end[0], end[9], end[10]))
                rows.append((str(S["matrix"].item()), labels, seed, *medians, *leading))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("matrix", "labels", "seed", "median, start", "median, end")
    leading_columns = ("largest, start", "largest, end", "tenth, end", "eleventh, end")
    return Table((*columns, *leading_columns), tuple(rows), "singular values")


def grokking_drops(runs: Runs) -> Table:
    """Modular addition: jump of accuracy and steepest drop of mean rank, by decay and seed."""
    grok = sweeps_of(runs, "grok")
    rows: list[Row] = [
        (f"{decay:g}", seed, *_drop(sweep[decay]))
        for decay in grok.decays
        for seed, sweep in grok.by_seed.items()
        if decay in sweep
    ]
    columns = ("decay", "seed", "jump, step", "drop, step", "drop by", "NER at the end", "accuracy")
    return Table(columns, tuple(rows), f"grid of {SPACING:g}")


def _drop(ds: xr.Dataset) -> Row:
    rank, jump = mean_rank(ds), crossing(ds)
    drop, size = steepest(rank, SPACING)
    steps = (None if math.isnan(jump) else round(10**jump), round(10**drop))
    return *steps, size, float(rank[-1]), float(ds["validation_accuracy"][-1])


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
