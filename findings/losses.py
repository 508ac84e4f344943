"""Y7, Y3b: what networks reach under decay, in training and on held-out data, and their norms."""

import xarray as xr

from findings.runs import Row, base_run, decay_table, sweep
from rankscope.lab.reading import whole
from rankscope.lab.verdict import Table


def norms() -> Table:
    """The median norm of a matrix at the largest decay, start and end, and the losses there."""
    rows: list[Row] = []
    for network in ("unet", "lstm", "lm"):
        decay, ds = max(sweep(network).items(), key=lambda entry: entry[0])
        ends = whole(ds[["singular_values"]].isel(step=[0, -1])).rankscope.frobenius_norm()
        start, end = map(float, ends.median("matrix"))
        losses = (float(ds[name][-1]) for name in ("training_loss", "validation_loss"))
        constant = float(ds.attrs["constant_loss"])
        rows.append((network, f"{decay:g}", start, end, end / start, *losses, constant))
    columns = ("network", "decay", "|W| at the start", "at the end", "ratio")
    losses_at_end = ("training loss", "held-out loss", "of a constant")
    return Table((*columns, *losses_at_end), tuple(rows), "Frobenius norms; losses at the end")


def learnt_by_heart() -> Table:
    """Transformer: training and held-out loss, by decay."""

    def lowest_at(ds: xr.Dataset) -> int:
        return int(ds["step"][int(ds["validation_loss"].argmin("step"))])

    return decay_table(
        f"loss; a third of the snapshots ends at step {third(base_run('lm'))}",
        "lm",
        {
            "lowest held-out loss": lambda ds: float(ds["validation_loss"].min()),
            "at step": lowest_at,
            "held-out loss at the end": lambda ds: float(ds["validation_loss"][-1]),
            "training loss at the end": lambda ds: float(ds["training_loss"][-1]),
        },
    )


def third(ds: xr.Dataset) -> int:
    """The step of the last snapshot of the first third of them."""
    return int(ds["step"][ds.sizes["step"] // 3 - 1])
