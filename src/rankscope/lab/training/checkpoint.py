"""The state of an unfinished training, beside its store: enough to go on bit for bit.

Order and noise need none: both follow from the seed and the step (`order.py`).
"""

import os
import pickle
from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from rankscope.tracker import Schedule


class Checkpoint:
    """Weights, optimizer and step of the run whose store is at `path`."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f"{path.name}.checkpoint")

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What `load` gives back; a kill while writing leaves the one before."""
        partial = self._file.with_name(f"{self._file.name}.partial")
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        try:
            torch.save(state, partial)
            os.replace(partial, self._file)
        except BaseException:
            partial.unlink(missing_ok=True)  # a full disk needs the space
            raise

    def load(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        snapshots: Schedule,
        stored: Collection[int],
    ) -> int:
        """Put the state back and return its step; 0 without one that can be read.

        Nor is one used if the last snapshot before it is not among those `stored`: it belongs to
        another store, or a loss of power took what came before it.
        """
        if not self._file.exists():
            return 0
        device = next(model.parameters()).device
        try:
            state = torch.load(self._file, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError):  # cut short by a loss of power
            return 0
        if next(step for step in range(state["step"], -1, -1) if snapshots(step)) not in stored:
            return 0
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def remove(self) -> None:
        for file in (self._file, self._file.with_name(f"{self._file.name}.partial")):
            file.unlink(missing_ok=True)
