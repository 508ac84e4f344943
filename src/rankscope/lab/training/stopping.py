"""A rule that ends a training before its last step, read from its own store."""

from dataclasses import dataclass

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
        """True if a training with this store ends at `step`.

        Snapshots after `step - steps` are ignored, since they may not be stored yet.
        """
        early = ds["training_loss"].to_numpy()[ds["step"].to_numpy() <= step - self.steps]
        return bool((early < self.loss).any())
