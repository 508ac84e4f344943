"""Y6: what the top and the bottom half of each SVD cost, by decay and over time."""

import numpy as np
import xarray as xr

from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.papers.boix2023.runs import epoch_steps
from rankscope.lab.papers.yunis2024.claims.truncation import gap, quotient, second_half
from rankscope.lab.papers.yunis2024.evidence.runs import (
    Measure,
    Row,
    base_run,
    by_column,
    decay_columns,
    decay_table,
    decays,
    sweeps,
)
from rankscope.lab.papers.yunis2024.runs import BASE, whole, with_full_loss
from rankscope.lab.papers.yunis2024.sweeps import rank_correlation

RATE_FALLS = 120  # the epoch at which the VGG's rate falls for the second time


def gaps(network: str) -> Table:
    """q of Y6 by decay: its mean over the second half of snapshots, and at the end alone."""
    measures: dict[str, Measure] = {
        "mean": lambda ds: gap(ds).q,
        "end": lambda ds: float(quotient(second_half(ds))[-1]),
    }
    rows: list[Row] = []
    for seed, runs in sweeps(network).items():
        for name, measure in measures.items():
            values = by_column(decays(network), runs, measure)
            known = np.array([measure(ds) for ds in runs.values()], float)
            correlation = rank_correlation(np.array([*runs]), known)
            rows.append((seed, name, *values, float(correlation)))
    columns = ("seed", "q", *decay_columns(decays(network)), "Spearman")
    return Table(columns, tuple(rows), f"q of {network}")


def vgg_gaps() -> Table:
    """VGG: q by decay."""
    return gaps("vgg")


def unet_gaps() -> Table:
    """UNet: q by decay."""
    return gaps("unet")


def lm_gaps() -> Table:
    """Transformer: q by decay."""
    return gaps("lm")


def vgg_costs() -> Table:
    """VGG: what the halves cost, when q is made, and what is left in the bottom half, by decay."""
    return decay_table(
        "means over the second half of snapshots",
        "vgg",
        {
            "top half costs": lambda ds: _late(ds, "top_loss") - _late(ds, "full_loss"),
            "bottom half costs": lambda ds: _late(ds, "bottom_loss") - _late(ds, "full_loss"),
            f"share of q up to epoch {RATE_FALLS}": early_share,
            "largest share of |W|^2 in the bottom half": lambda ds: float(bottom_share(ds).max()),
        },
    )


def _late(ds: xr.Dataset, loss: str) -> float:
    return float(second_half(ds)[loss].mean())


def early_share(ds: xr.Dataset) -> Cell:
    """Of the sum of q over the second half of snapshots; None where q is 0 throughout."""
    q = quotient(second_half(ds))
    epoch = epoch_steps(ds)
    assert epoch is not None, "snapshots of the VGG are declared by epochs"
    total = float(q.sum())
    return (
        float(q[q["step"].to_numpy() <= RATE_FALLS * epoch].sum()) / total if total > 1e-6 else None
    )


def bottom_share(ds: xr.Dataset) -> xr.DataArray:
    """(matrix): of the squares of singular values at the end, of all that are truncated."""

    def share(S: np.ndarray) -> np.ndarray:
        kept = -(-S.shape[-1] // 2)
        part: np.ndarray = (S[..., kept:] ** 2).sum(-1) / (S**2).sum(-1)
        return part

    # As training does for figure 6: the last matrix stays whole, in the VGG the only linear layer.
    truncated = whole(ds.isel(step=[-1])).isel(matrix=slice(None, -1))
    shares: xr.DataArray = truncated.rankscope.apply(share)
    return shares.isel(step=0)


def unet_costs() -> Table:
    """UNet: losses of the network and its halves, by decay; an output of 0 has a loss of 1."""

    return decay_table(
        "means over the second half of snapshots, but where it says otherwise",
        "unet",
        {
            "network": lambda ds: _late(ds, "full_loss"),
            "top half": lambda ds: _late(ds, "top_loss"),
            "top half costs": lambda ds: _late(ds, "top_loss") - _late(ds, "full_loss"),
            "bottom half": lambda ds: _late(ds, "bottom_loss"),
            "top half at the end": lambda ds: float(ds["top_loss"][-1]),
            "q against an output of 0": against_zero,
        },
    )


def against_zero(ds: xr.Dataset) -> float:
    """What the top half costs over what an output of 0 does, mean over the second half."""
    late = second_half(ds)
    full = late["full_loss"]
    return float(((late["top_loss"] - full) / (1 - full)).mean())


def lm_course() -> Table:
    """Transformer at the base decay: q and losses over time."""
    ds = with_full_loss(base_run("lm"))
    q = quotient(ds)
    losses = zip(*(ds[name].values.tolist() for name in ("full_loss", "top_loss")), strict=True)
    rows = tuple(
        (int(step), float(each), *both)
        for step, each, both in zip(ds["step"], q, losses, strict=True)
    )
    return Table(("step", "q", "network", "top half"), rows, f"losses at decay {BASE['lm']:g}")
