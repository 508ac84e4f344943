"""Y6: loss that the top and the bottom half of each SVD cost, by decay and over time."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from rankscope.lab.judging.correlation import rank_correlation
from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.yunis2024.claims.alignment import declared
from rankscope.lab.papers.yunis2024.claims.truncation import gap, quotient, second_half
from rankscope.lab.papers.yunis2024.evidence.runs import (
    Reading,
    base_run,
    by_column,
    decay_columns,
    sweeps_of,
)
from rankscope.lab.papers.yunis2024.runs import BASE, with_full_loss
from rankscope.lab.reporting.evidence import Row

RATE_FALLS = 120  # the epoch at which the VGG's rate falls for the second time
Q_READINGS: Mapping[str, Reading] = {
    "mean": lambda ds: gap(ds).q,
    "end": lambda ds: float(quotient(second_half(ds))[-1]),
}


def vgg_gaps(runs: Runs) -> Table:
    """VGG: q of Y6 by decay, its mean over the second half of snapshots and at the end."""
    return gaps(runs, "vgg")


def unet_gaps(runs: Runs) -> Table:
    """UNet: q of Y6 by decay, its mean over the second half of snapshots and at the end."""
    return gaps(runs, "unet")


def lm_gaps(runs: Runs) -> Table:
    """Transformer: q of Y6 by decay, its mean over the second half of snapshots and at the end."""
    return gaps(runs, "lm")


def gaps(runs: Runs, network: str) -> Table:
    """Return q by seed, reading and decay, with its correlation with decay."""
    sweeps, rows = sweeps_of(runs, network), list[Row]()
    for seed, sweep in sweeps.by_seed.items():
        for name, read in Q_READINGS.items():
            q = {decay: read(ds) for decay, ds in sweep.items()}
            correlation = rank_correlation(np.array([*q]), np.array([*q.values()], float))
            cells = by_column(sweeps.decays, q, lambda value: value)
            rows.append((seed, name, *cells, float(correlation)))
    columns = ("seed", "q", *decay_columns(sweeps.decays), "Spearman")
    return Table(columns, tuple(rows), f"q of {network}")


def vgg_costs(runs: Runs) -> Table:
    """VGG: loss that the halves cost, share of q by epoch 120, and what the bottom half holds."""
    return sweeps_of(runs, "vgg").table(
        "means over the second half of snapshots",
        {
            "top half costs": lambda ds: _cost(ds, "top_loss"),
            "bottom half costs": lambda ds: _cost(ds, "bottom_loss"),
            f"share of q up to epoch {RATE_FALLS}": early_share,
            "largest share of |W|^2 in the bottom half": lambda ds: float(bottom_share(ds).max()),
        },
    )


def _late(ds: xr.Dataset, loss: str) -> float:
    return float(second_half(ds)[loss].mean())


def _cost(ds: xr.Dataset, loss: str) -> float:
    return _late(ds, loss) - _late(ds, "full_loss")


def early_share(ds: xr.Dataset) -> Cell:
    """Return the share of the sum of q up to epoch 120; None if q is 0 throughout."""
    q = quotient(second_half(ds))
    last_step = RATE_FALLS * declared(ds.attrs["declaration"], "steps_per_epoch")
    total = float(q.sum())
    return float(q[q["step"].to_numpy() <= last_step].sum()) / total if total > 1e-6 else None


def bottom_share(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): share of |W|^2 in the bottom half of the SVD at the end, if it is truncated."""

    def share(S: np.ndarray) -> np.ndarray:
        squares = S**2
        top = -(-S.shape[-1] // 2)
        part: np.ndarray = squares[..., top:].sum(-1) / squares.sum(-1)
        return part

    # As training does for figure 6: the last matrix stays whole, in the VGG the only linear layer.
    truncated = ds.isel(step=[-1]).rankscope.whole().isel(matrix=slice(None, -1))
    shares: xr.DataArray = truncated.rankscope.apply(share)
    return shares.isel(step=0)


def unet_costs(runs: Runs) -> Table:
    """UNet: losses of the network and its halves, by decay; an output of 0 has a loss of 1."""
    return sweeps_of(runs, "unet").table(
        "means over the second half of snapshots, if not at the end",
        {
            "network": lambda ds: _late(ds, "full_loss"),
            "top half": lambda ds: _late(ds, "top_loss"),
            "top half costs": lambda ds: _cost(ds, "top_loss"),
            "bottom half": lambda ds: _late(ds, "bottom_loss"),
            "top half at the end": lambda ds: float(ds["top_loss"][-1]),
            "q against an output of 0": against_zero,
        },
    )


def against_zero(ds: xr.Dataset) -> float:
    """Return the cost of the top half over that of an output of 0, mean over the second half."""
    late = second_half(ds)
    full = late["full_loss"]
    return float(((late["top_loss"] - full) / (1 - full)).mean())


def lm_course(runs: Runs) -> Table:
    """Transformer at the base decay: q and losses over time."""
    ds = with_full_loss(base_run(runs, "lm"))
    values = (ds["full_loss"].values.tolist(), ds["top_loss"].values.tolist())
    rows = tuple(
        (int(step), float(q), full, top)
        for step, q, full, top in zip(ds["step"], quotient(ds), *values, strict=True)
    )
    return Table(("step", "q", "network", "top half"), rows, f"losses at decay {BASE['lm']:g}")
