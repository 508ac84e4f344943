"""The saved state of an unfinished training, from which it resumes bit for bit.

It lies beside the run's store. Order and noise are not saved: they follow from the seed and the
step (`order.py`).
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
        """Write the state that `load` restores; if killed here, the last checkpoint remains."""
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
        """Restore the state and return its step, or 0 if no usable checkpoint exists.

        A checkpoint is ignored if the last snapshot before it is not among the `stored` steps. It
        then belongs to another store, or a power cut took that snapshot.
        """
        device = next(model.parameters()).device
        try:
            state = torch.load(self._file, map_location=device, weights_only=True)
        except (FileNotFoundError, RuntimeError, EOFError, pickle.UnpicklingError):
            return 0  # there is none, or a power cut has cut it short
        if next(step for step in range(state["step"], -1, -1) if snapshots(step)) not in stored:
            return 0
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def remove(self) -> None:
        for file in (self._file, self._file.with_name(f"{self._file.name}.partial")):
            file.unlink(missing_ok=True)
