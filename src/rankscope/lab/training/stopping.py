"""When a training ends before its last step, by what its own store says."""

from dataclasses import dataclass

import xarray as xr


@dataclass(frozen=True)
class Settled:
    """Training ends at a snapshot, `steps` steps or more after one with `training_loss` < `loss`.

    boix2023's small initial values learn long after there is nothing left to learn.
    """

    loss: float
    steps: int

    def __post_init__(self) -> None:
        if not self.loss > 0 or self.steps < 1:
            raise ValueError(
                f"a training settles below a loss above 0 and goes on for at least 1 step; got "
                f"{self.loss} and {self.steps}"
            )

    def over(self, ds: xr.Dataset, step: int) -> bool:
        """Whether a training with this store ends at `step`.

        Snapshots after `step - steps` do not matter: they may still be on their way to the store.
        """
        early = ds["training_loss"].to_numpy()[ds["step"].to_numpy() <= step - self.steps]
        return bool((early < self.loss).any())
