"""Y7, Y3b: losses and norms that networks reach under decay."""

import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.evidence.runs import base_run, sweeps_of
from rankscope.lab.reporting.evidence import Row


def norms(runs: Runs) -> Table:
    """Median norm of a matrix at the start and at the end, and losses, at the largest decay."""
    rows: list[Row] = []
    for network in ("unet", "lstm", "lm"):
        sweep = sweeps_of(runs, network).first
        decay, ds = max(sweep), sweep[max(sweep)]
        ends = (
            ds[["singular_values"]].isel(step=[0, -1]).rankscope.whole().rankscope.frobenius_norm()
        )
        start, end = map(float, ends.median("matrix"))
        losses = (float(ds[name][-1]) for name in ("training_loss", "validation_loss"))
        constant = float(ds.attrs["constant_loss"])
        rows.append((network, f"{decay:g}", start, end, end / start, *losses, constant))
    columns = ("network", "decay", "|W| at the start", "at the end", "ratio")
    loss_columns = ("training loss", "held-out loss", "constant predictor's")
    return Table((*columns, *loss_columns), tuple(rows), "Frobenius norms; losses at the end")


def lm_losses(runs: Runs) -> Table:
    """Transformer: training and held-out loss, by decay."""

    def step_of_lowest(ds: xr.Dataset) -> int:
        return int(ds["step"][int(ds["validation_loss"].argmin("step"))])

    return sweeps_of(runs, "lm").table(
        f"loss; the first third of snapshots ends at step {third(base_run(runs, 'lm'))}",
        {
            "lowest held-out loss": lambda ds: float(ds["validation_loss"].min()),
            "at step": step_of_lowest,
            "held-out loss at the end": lambda ds: float(ds["validation_loss"][-1]),
            "training loss at the end": lambda ds: float(ds["training_loss"][-1]),
        },
    )


def third(ds: xr.Dataset) -> int:
    """Return the step of the last snapshot in the first third of snapshots."""
    return int(ds["step"][ds.sizes["step"] // 3 - 1])
