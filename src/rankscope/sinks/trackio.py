"""trackio as a sink."""

from collections.abc import Sequence

import trackio
import xarray as xr
from trackio import context_vars
from trackio.run import Run

from rankscope.sinks.digest import PREFIX, Matrices, check_metrics, digest, heat_map


class Trackio:
    """Log each snapshot to trackio: `Tracker(sinks=Trackio())`.

    run: a run of trackio; the one that is active at the first snapshot by default.
    metrics, matrices: what to log, as in `digest`.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        metrics: Sequence[str] | None = None,
        matrices: Matrices = (),
    ) -> None:
        check_metrics(metrics)
        self._run = run
        self._metrics, self._matrices = metrics, matrices

    def __call__(self, run: xr.Dataset) -> None:
        """Log the last snapshot of `run`."""
        snapshot = digest(run, metrics=self._metrics, matrices=self._matrices)
        self._run = self._run or context_vars.current_run.get()
        if self._run is None:
            raise ValueError("trackio has no active run; call trackio.init(project=...) first")
        image = trackio.Image(heat_map(run), caption=f"step {snapshot.step}")
        self._run.log({f"{PREFIX}/spectra": image} | snapshot.labelled(), step=snapshot.step)
