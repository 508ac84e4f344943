"""The saved state of an unfinished training, from which it resumes bit for bit.

It lies beside the run's store. Order and noise are not saved: they follow from the seed and the
step (`order.py`). The file ends with its checksum, which torch.load ignores.
"""

import os
import struct
import warnings
from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope.store.chunk import Damage, checksum
from rankscope.store.source import Folder
from rankscope.tracker import Schedule

MOST_BYTES = 2**40
MARK = b"rankscope-crc32c"  # followed by the checksum of all before it


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
            with partial.open("r+b") as file:
                file.write(MARK + struct.pack("<I", checksum(file.read())))
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
        then belongs to another store, or a power cut took that snapshot. A damaged one is ignored
        with a warning.
        """
        device = next(model.parameters()).device
        try:
            state = self._read(device)
        except Damage as damage:
            warnings.warn(
                f"{self._file} is damaged ({damage}); the run starts again from its beginning",
                stacklevel=2,
            )
            return 0
        if state is None:
            return 0
        if next(step for step in range(state["step"], -1, -1) if snapshots(step)) not in stored:
            return 0
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def damage(self) -> str | None:
        """Return what is wrong with the file, None if nothing is or there is none."""
        try:
            self._read(torch.device("cpu"))
        except Damage as damage:
            return str(damage)
        return None

    def _read(self, device: torch.device) -> dict[str, Any] | None:
        """Return the saved state, None if there is none; Damage if it is not what was saved."""
        file = Folder(self._file.parent).open(self._file.name, most_bytes=MOST_BYTES)
        if file is None:
            return None
        with file:
            data = file.read()
        body, mark, stored = data[:-20], data[-20:-4], data[-4:]
        if mark == MARK and stored != struct.pack("<I", checksum(body)):
            raise Damage("checksum differs")
        try:  # checkpoints of earlier versions have no checksum
            state = torch.load(BytesIO(data), map_location=device, weights_only=True)
        except Exception:  # torch's reader raises nearly anything on a damaged file
            raise Damage("it cannot be read") from None
        if not isinstance(state, dict) or state.keys() != {"step", "model", "optimizer"}:
            raise Damage("it does not hold a training")
        return state

    def remove(self) -> None:
        for file in (self._file, self._file.with_name(f"{self._file.name}.partial")):
            file.unlink(missing_ok=True)
