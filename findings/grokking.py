"""Y9: where rank falls as a network groks, and how that depends on what "steepest" means."""

import math
from functools import cache

import numpy as np
import xarray as xr

from findings.runs import Row, seeds, sweep
from rankscope.lab.claims.grokking import SPACING, crossing, mean_rank
from rankscope.lab.verdict import Table

LARGEST = 1.0  # decay
SPACINGS = (0.005, 0.01, 0.02, SPACING, 0.1, 0.2, 0.3)


@cache
def course(decay: float, seed: int) -> xr.DataArray:
    """(step): mean NER."""
    return mean_rank(sweep("grok", seed)[decay])


def drops() -> Table:
    """The jump of accuracy and the steepest drop of mean NER, by decay and seed."""
    rows: list[Row] = []
    for decay in sweep("grok"):
        for seed in seeds("grok"):
            ds, rank = sweep("grok", seed)[decay], course(decay, seed)
            at, by = steepest(rank, SPACING)
            jump = crossing(ds)
            fallen = float(rank[0]) - float(np.interp(10**at, rank["step"], rank))
            over = fallen / float(rank[0] - rank[-1])
            when = (None if math.isnan(jump) else round(10**jump), round(10**at))
            ends = float(rank[-1]), float(ds["validation_accuracy"][-1])
            rows.append((f"{decay:g}", seed, *when, by, over, *ends))
    columns = ("decay", "seed", "jump, step", "drop, step", "drop by", "share of the fall over")
    return Table((*columns, "NER at the end", "accuracy"), tuple(rows), f"grid of {SPACING:g}")


def spacings() -> Table:
    """log10 steps from the jump to the steepest drop at decay 1, by the spacing of the grid."""
    jumps = {seed: crossing(sweep("grok", seed)[LARGEST]) for seed in seeds("grok")}

    def row(spacing: float) -> Row:
        drops = (steepest(course(LARGEST, seed), spacing)[0] for seed in jumps)
        after = (drop - jump for drop, jump in zip(drops, jumps.values(), strict=True))
        return f"{spacing:g}", *after

    columns = ("spacing", *(f"seed {seed}" for seed in jumps))
    return Table(columns, tuple(map(row, SPACINGS)), "drop after jump")


def steepest(rank: xr.DataArray, spacing: float) -> tuple[float, float]:
    """log10 step of the steepest drop of mean NER on a grid of this spacing, and its size."""
    rank = rank.isel(step=slice(1, None))
    steps = np.log10(rank["step"].to_numpy())
    grid = np.linspace(steps[0], steps[-1], 1 + math.ceil((steps[-1] - steps[0]) / spacing))
    falls = -np.diff(np.interp(grid, steps, rank.to_numpy()))
    at = int(falls.argmax())
    return float(grid[at] + grid[at + 1]) / 2, float(falls[at])


def single_snapshots() -> Table:
    """The steepest fall between two snapshots at decay 1, per log10 step and per step."""
    rows: list[Row] = []
    for seed in seeds("grok"):
        rank = course(LARGEST, seed).isel(step=slice(1, None))
        steps, fall = rank["step"].to_numpy(), -np.diff(rank.to_numpy())
        for unit, time in (("log10 step", np.log10(steps)), ("step", steps)):
            at = int((fall / np.diff(time)).argmax())
            rows.append((seed, unit, int(steps[at]), int(steps[at + 1]), float(fall[at])))
    return Table(
        ("seed", "per", "from step", "to", "falls by"), tuple(rows), "steepest fall of NER"
    )
