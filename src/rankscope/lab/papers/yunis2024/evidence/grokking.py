"""Y9: when rank falls as a network groks, and how that depends on how steepness is read."""

import math

import numpy as np
import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.grokking import SPACING, crossing, mean_rank, steepest
from rankscope.lab.papers.yunis2024.evidence.runs import Sweeps, sweeps_of
from rankscope.lab.reporting.evidence import Row

SPACINGS = (0.005, 0.01, 0.02, SPACING, 0.1, 0.2, 0.3)


def drops(runs: Runs) -> Table:
    """Modular addition: jump of accuracy and steepest drop of mean rank, by decay and seed."""
    grok = sweeps_of(runs, "grok")
    rows: list[Row] = [
        (f"{decay:g}", seed, *_drop(sweep[decay]))
        for decay in grok.decays
        for seed, sweep in grok.by_seed.items()
        if decay in sweep
    ]
    columns = ("decay", "seed", "jump, step", "drop, step", "drop by", "share of the fall over")
    return Table((*columns, "NER at the end", "accuracy"), tuple(rows), f"grid of {SPACING:g}")


def _drop(ds: xr.Dataset) -> Row:
    rank, jump = mean_rank(ds), crossing(ds)
    drop, size = steepest(rank, SPACING)
    steps = (None if math.isnan(jump) else round(10**jump), round(10**drop))
    ends = float(rank[-1]), float(ds["validation_accuracy"][-1])
    return *steps, size, fallen_share(rank, 10**drop), *ends


def fallen_share(rank: xr.DataArray, step: float) -> float:
    """Return which share of the fall from the first to the last snapshot is over at a step."""
    fallen = float(rank[0]) - float(np.interp(step, rank["step"], rank))
    return fallen / float(rank[0] - rank[-1])


def spacings(runs: Runs) -> Table:
    """Modular addition: log10 steps from the jump to the steepest drop, by spacing of the grid."""
    grok = sweeps_of(runs, "grok")
    seeds = _at_largest(grok)
    jumps = {seed: crossing(ds) for seed, ds in seeds.items()}
    ranks = {seed: mean_rank(ds) for seed, ds in seeds.items()}
    rows: tuple[Row, ...] = tuple(
        (f"{spacing:g}", *(steepest(ranks[seed], spacing)[0] - jumps[seed] for seed in seeds))
        for spacing in SPACINGS
    )
    columns = ("spacing", *(f"seed {seed}" for seed in seeds))
    return Table(columns, rows, f"drop after jump, decay {max(grok.decays):g}")


def _at_largest(grok: Sweeps) -> dict[int, xr.Dataset]:
    """Return the runs at the largest decay by seed."""
    largest = max(grok.decays)
    return {seed: sweep[largest] for seed, sweep in grok.by_seed.items() if largest in sweep}


def single_snapshots(runs: Runs) -> Table:
    """Modular addition: steepest fall between two snapshots, per log10 step and per step."""
    grok, rows = sweeps_of(runs, "grok"), list[Row]()
    for seed, ds in _at_largest(grok).items():
        rank = mean_rank(ds).isel(step=slice(1, None))
        steps, fall = rank["step"].to_numpy(), -np.diff(rank.to_numpy())
        for unit, time in (("log10 step", np.log10(steps)), ("step", steps)):
            place = int((fall / np.diff(time)).argmax())
            ends = int(steps[place]), int(steps[place + 1])
            rows.append((seed, unit, *ends, float(fall[place])))
    title = f"steepest fall of NER, decay {max(grok.decays):g}"
    return Table(("seed", "per", "from step", "to", "falls by"), tuple(rows), title)
