"""Weights & Biases as a sink."""

from collections.abc import Sequence

import wandb
import xarray as xr

from rankscope.sinks.digest import PREFIX, Matrices, check_metrics, digest, heat_map


class WandB:
    """Log each snapshot to Weights & Biases: `Tracker(sinks=WandB())`.

    A snapshot is measured some steps after it was taken. Its values therefore have an axis of their
    own, rankscope/step, and leave W&B's step to the training.

    run: a run of wandb; the one that is active at the first snapshot by default.
    metrics, matrices: what to log, as in `digest`.
    """

    def __init__(
        self,
        run: "wandb.Run | None" = None,
        *,
        metrics: Sequence[str] | None = None,
        matrices: Matrices = (),
    ) -> None:
        check_metrics(metrics)
        self._run, self._is_ready = run, False
        self._metrics, self._matrices = metrics, matrices

    def __call__(self, run: xr.Dataset) -> None:
        """Log the last snapshot of `run`."""
        snapshot = digest(run, metrics=self._metrics, matrices=self._matrices)
        image = wandb.Image(heat_map(run), caption=f"step {snapshot.step}")
        own = {f"{PREFIX}/step": snapshot.step, f"{PREFIX}/spectra": image}
        self._ready().log(own | snapshot.labelled())

    def _ready(self) -> "wandb.Run":
        self._run = self._run or wandb.run
        if self._run is None:
            raise ValueError("Weights & Biases has no active run; call wandb.init() first")
        if not self._is_ready:
            self._run.define_metric(f"{PREFIX}/*", step_metric=f"{PREFIX}/step")
            self._is_ready = True
        return self._run
