"""The state of an unfinished training, beside its store: enough to go on bit for bit.

Order and noise need none: both follow from the seed and the step (`order.py`).
"""

import os
from pathlib import Path

import torch
from torch import nn


class Checkpoint:
    """Weights, optimizer and step of the run whose store is at `path`."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f"{path.name}.checkpoint")

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What `load` gives back; a kill while writing leaves the one before."""
        partial = self._file.with_name(f"{self._file.name}.partial")
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, partial)
        os.replace(partial, self._file)

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Put the state back and return its step; without a checkpoint, 0."""
        if not self._file.exists():
            return 0
        device = next(model.parameters()).device
        state = torch.load(self._file, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def remove(self) -> None:
        for file in (self._file, self._file.with_name(f"{self._file.name}.partial")):
            file.unlink(missing_ok=True)
