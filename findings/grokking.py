"""Y9: where rank falls as a network groks, and how that depends on what "steepest" means."""

import math

import numpy as np
import xarray as xr

from findings.runs import Row, decays, sweeps
from rankscope.lab.claims.grokking import SPACING, crossing, mean_rank, steepest
from rankscope.lab.verdict import Table

SPACINGS = (0.005, 0.01, 0.02, SPACING, 0.1, 0.2, 0.3)


def drops() -> Table:
    """The jump of accuracy and the steepest drop of mean NER, by decay and seed."""
    rows: list[Row] = [
        (f"{decay:g}", seed, *_drop(runs[decay]))
        for decay in decays("grok")
        for seed, runs in sweeps("grok").items()
        if decay in runs
    ]
    columns = ("decay", "seed", "jump, step", "drop, step", "drop by", "share of the fall over")
    return Table((*columns, "NER at the end", "accuracy"), tuple(rows), f"grid of {SPACING:g}")


def _drop(ds: xr.Dataset) -> Row:
    rank, jump = mean_rank(ds), crossing(ds)
    at, by = steepest(rank, SPACING)
    when = (None if math.isnan(jump) else round(10**jump), round(10**at))
    ends = float(rank[-1]), float(ds["validation_accuracy"][-1])
    return *when, by, fallen_share(rank, 10**at), *ends


def fallen_share(rank: xr.DataArray, step: float) -> float:
    """Of the fall of mean NER from the first snapshot to the last, the part up to a step."""
    fallen = float(rank[0]) - float(np.interp(step, rank["step"], rank))
    return fallen / float(rank[0] - rank[-1])


def spacings() -> Table:
    """log10 steps from the jump to the steepest drop at the largest decay, by spacing of grid."""
    runs = _at_largest()
    jumps = {seed: crossing(ds) for seed, ds in runs.items()}
    ranks = {seed: mean_rank(ds) for seed, ds in runs.items()}

    def row(spacing: float) -> Row:
        after = (steepest(ranks[seed], spacing)[0] - jump for seed, jump in jumps.items())
        return f"{spacing:g}", *after

    columns = ("spacing", *(f"seed {seed}" for seed in jumps))
    title = f"drop after jump, decay {max(decays('grok')):g}"
    return Table(columns, tuple(map(row, SPACINGS)), title)


def _at_largest() -> dict[int, xr.Dataset]:
    """By seed, at the largest decay."""
    largest = max(decays("grok"))
    return {seed: runs[largest] for seed, runs in sweeps("grok").items() if largest in runs}


def single_snapshots() -> Table:
    """The steepest fall between two snapshots at the largest decay, per log10 step and per step."""
    rows: list[Row] = []
    for seed, ds in _at_largest().items():
        rank = mean_rank(ds).isel(step=slice(1, None))
        steps, fall = rank["step"].to_numpy(), -np.diff(rank.to_numpy())
        for unit, time in (("log10 step", np.log10(steps)), ("step", steps)):
            at = int((fall / np.diff(time)).argmax())
            rows.append((seed, unit, int(steps[at]), int(steps[at + 1]), float(fall[at])))
    title = f"steepest fall of NER, decay {max(decays('grok')):g}"
    return Table(("seed", "per", "from step", "to", "falls by"), tuple(rows), title)
