"""Claim N2: the initial scale sets the rank that the change of a network's heads needs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.head_cuts import CUTS, Cut, CutAccuracies
from rankscope.lab.training.outcome import collapsed

EXPERIMENT = "findings/needed-rank"
SCALES = 4
SHARE = 0.99  # of the held-out accuracy gained
TREND = 0.8  # Spearman
CUT_TITLES: dict[Cut, str] = {"kq": "K-Q", "vo": "V-O", "both": "both"}

# Runs of one seed and decay by initial scale, ascending.
AtScales = Mapping[float, xr.Dataset]


def needed_ranks(ds: xr.Dataset) -> dict[Cut, float]:
    """Return r* of each cut: the smallest rank that keeps 99%; infinity if none does."""
    accuracies = CutAccuracies.of_run(ds)
    assert accuracies is not None
    return {cut: accuracies.needed(cut, SHARE) for cut in CUTS}


def why_untold(ds: xr.Dataset) -> str:
    """Return why a run has no r*, or "" if it has."""
    if reason := collapsed(ds):
        return reason
    accuracies = CutAccuracies.of_run(ds)
    if accuracies is None:
        return "no cuts were measured"
    if not accuracies.gained > 0:
        return f"accuracy went from {accuracies.start:.1%} to {accuracies.end:.1%}"
    return ""


def measure(runs: Runs) -> Iterator[Measured]:
    """Ask that r* grows with the initial scale and that K-Q needs no more than V-O, at each decay.

    r* is the smallest rank r >= 1 that keeps 99% of the held-out accuracy gained, which is the
    final one minus that at the start. Spearman is that of the scale with r* of both cuts together.
    If no rank suffices, r* is above the largest: it ranks above all others, and two such are equal.
    If r* is the same at every scale, Spearman is 0. A seed cannot tell at a decay if one of the
    four scales was not run there, collapsed, or gained nothing.
    """
    for decay, of_decay in by_decay(runs).items():
        for seed in of_decay.seeds:
            at_scales = {
                factor: seeds[seed]
                for factor, seeds in of_decay.by("scale").items()
                if seed in seeds
            }
            key = next(iter(of_decay))
            place = f"{key.experiment}: decay {decay:g}, seed {seed}"
            measured = replace(measure_scales(at_scales), variant={"decay": decay})
            remarks = tuple(f"{place} {remark}" for remark in measured.remarks)
            yield replace(measured, remarks=remarks).at(key, seed)


def by_decay(runs: Runs) -> dict[float, Runs]:
    """Return the runs of each weight decay, ascending."""
    entries: dict[float, dict[RunKey, Mapping[int, xr.Dataset]]] = {}
    for key in runs:
        entries.setdefault(float(key.variant["decay"]), {})[key] = runs[key]
    return {decay: Runs(of_decay) for decay, of_decay in sorted(entries.items())}


def measure_scales(at_scales: AtScales) -> Measured:
    """Measure one seed at one decay."""
    reasons = {factor: why_untold(ds) for factor, ds in at_scales.items()}
    rows = tuple(_row(factor, at_scales[factor], reason) for factor, reason in reasons.items())
    remarks = [f"cannot tell: at scale {f:g} {why}" for f, why in reasons.items() if why]
    if len(at_scales) < SCALES:
        remarks.append(f"has {len(at_scales)} of the {SCALES} scales that it takes")
    if remarks:
        return Measured(rows=rows, remarks=tuple(remarks))
    ranks = {factor: needed_ranks(ds) for factor, ds in at_scales.items()}
    trend = spearman({factor: of_cuts["both"] for factor, of_cuts in ranks.items()})
    fewer = all(of_cuts["kq"] <= of_cuts["vo"] for of_cuts in ranks.values())
    return Measured(trend, trend >= TREND and fewer, rows)


def spearman(ranks: Mapping[float, float]) -> float:
    """Return Spearman's correlation of the scale and r*."""
    return float(rank_correlation(np.array(list(ranks)), np.array(list(ranks.values()))))


def _row(factor: float, ds: xr.Dataset, reason: str) -> dict[str, Cell]:
    row: dict[str, Cell] = {"scale": factor}
    if (accuracies := CutAccuracies.of_run(ds)) is not None:
        row |= {"accuracy at the start": accuracies.start, "at the end": accuracies.end}
        if accuracies.gained > 0:
            largest = int(accuracies.ranks[-1])
            for cut, title in CUT_TITLES.items():
                row[f"kept at rank 0, {title}"] = float(accuracies.kept(cut)[0])
            for cut, title in CUT_TITLES.items():
                row[f"r*, {title}"] = rank_cell(accuracies.needed(cut, SHARE), largest)
    return row | ({"note": reason} if reason else {})


def rank_cell(rank: float, largest: int) -> Cell:
    """Return r* as it is written; "> 128" if no rank suffices."""
    return f"> {largest}" if math.isinf(rank) else int(rank)


def needed_rank_tables(runs: Runs, archive: Path) -> list[Table]:
    """Return the table of r* by decay and initial scale; without rows if there is no run."""
    return [needed_rank_table(runs)]


def needed_rank_table(runs: Runs) -> Table:
    """Return the accuracy at the end, mean over seeds, and r* of every seed in their order."""
    rows = []
    for decay, of_decay in by_decay(runs).items():
        for factor, seeds in of_decay.by("scale").items():
            stored = {seed: CutAccuracies.of_run(ds) for seed, ds in seeds.items()}
            judged = {
                seed: accuracies
                for seed, accuracies in stored.items()
                if accuracies is not None and not why_untold(seeds[seed])
            }
            ends = [accuracies.end for accuracies in judged.values()]
            needed = (
                ", ".join(
                    str(rank_cell(accuracies.needed(cut, SHARE), int(accuracies.ranks[-1])))
                    for accuracies in judged.values()
                )
                for cut in CUTS
            )
            end = float(np.mean(ends)) if ends else None
            rows.append((decay, factor, ", ".join(map(str, judged)), end, *needed))
    titles = (f"r*, {title}" for title in CUT_TITLES.values())
    columns = ("decay", "initial scale", "seeds", "accuracy at the end", *titles)
    return Table(columns, tuple(rows), "smallest ranks that keep 99%, one for each seed")


N2 = Rule(
    claim="N2",
    sentence="the start sets the rank that training needs: the smaller the scale, the lower",
    quantity=(
        "Spearman(scale, r*), r* the smallest rank of the heads' change that keeps "
        f"{SHARE:.0%} of the held-out accuracy gained; r*(K-Q) <= r*(V-O) at every scale"
    ),
    bound=f">= {TREND:g}",
    measure=measure,
    needs=runs_of("vit", experiment=EXPERIMENT),
    table="accuracy, the share kept with the initial heads, and r*, by initial scale",
    changed=True,
    ours=True,
)
