"""Rules that end a training before its last step, read from its own store."""

from dataclasses import dataclass

import numpy as np
import xarray as xr


@dataclass(frozen=True)
class Settled:
    """A stop at the first snapshot at least `steps` steps after one with training_loss < `loss`."""

    loss: float
    steps: int

    def __post_init__(self) -> None:
        if not self.loss > 0 or self.steps < 1:
            raise ValueError(
                f"a stop needs a loss above 0 and at least 1 step, got {self.loss} and {self.steps}"
            )

    def over(self, ds: xr.Dataset, step: int) -> bool:
        """True if a training with this store ends at `step`."""
        return bool((_early(ds, "training_loss", step - self.steps) < self.loss).any())


@dataclass(frozen=True)
class Generalised:
    """A stop at the first snapshot at least `steps` steps after one with high held-out accuracy.

    accuracy: validation_accuracy that it has to reach.
    """

    accuracy: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 < self.accuracy <= 1 or self.steps < 1:
            raise ValueError(
                "a stop needs an accuracy above 0, at most 1, and at least 1 step; got "
                f"{self.accuracy} and {self.steps}"
            )

    def over(self, ds: xr.Dataset, step: int) -> bool:
        """True if a training with this store ends at `step`."""
        reached = _early(ds, "validation_accuracy", step - self.steps) >= self.accuracy
        return bool(reached.any())


Stop = Settled | Generalised


def _early(ds: xr.Dataset, name: str, last: int) -> np.ndarray:
    """Values at the snapshots up to step `last`; later ones may not be stored yet."""
    values: np.ndarray = ds[name].to_numpy()[ds["step"].to_numpy() <= last]
    return values
