"""TensorBoard as a sink."""

import weakref
from collections.abc import Sequence
from pathlib import Path

import xarray as xr
from torch.utils.tensorboard import SummaryWriter

from rankscope.sinks.digest import (
    PREFIX,
    Digest,
    Matrices,
    check_metrics,
    digest,
    heat_map,
)


class TensorBoard:
    """Log each snapshot to TensorBoard: `Tracker(sinks=TensorBoard("logs"))`.

    writer: a folder, or a SummaryWriter, such as Lightning's `logger.experiment`.
    metrics, matrices: what to log, as in `digest`.
    """

    def __init__(
        self,
        writer: SummaryWriter | str | Path,
        *,
        metrics: Sequence[str] | None = None,
        matrices: Matrices = (),
    ) -> None:
        check_metrics(metrics)
        self._writer = writer
        self._metrics, self._matrices = metrics, matrices

    def __call__(self, run: xr.Dataset) -> None:
        """Log the last snapshot of `run`."""
        snapshot = digest(run, metrics=self._metrics, matrices=self._matrices)
        writer = self._opened()
        for name, value in snapshot.scalars.items():
            writer.add_scalar(f"{PREFIX}/{name}", value, snapshot.step)
        writer.add_image(f"{PREFIX}/spectra", heat_map(run), snapshot.step, dataformats="HWC")
        writer.add_text(f"{PREFIX}/extremes", _table(snapshot), snapshot.step)
        writer.flush()

    def _opened(self) -> SummaryWriter:
        """Return the writer, made at the first snapshot: only one of several processes has one."""
        if isinstance(self._writer, str | Path):
            self._writer = SummaryWriter(str(self._writer))
            weakref.finalize(self, self._writer.close)
        return self._writer


def _table(snapshot: Digest) -> str:
    """Return the lowest and highest values with their matrices, in Markdown."""
    rows = [
        f"| {name} | {matrix} | {snapshot.scalars[name]:.4g} |"
        for name, matrix in snapshot.names.items()
    ]
    return "\n".join(["| scalar | matrix | value |", "|---|---|---|", *rows])
