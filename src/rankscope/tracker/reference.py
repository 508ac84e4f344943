"""Reference weights: what changes are measured from."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rankscope.matrices import full_tensor, named_tensors, state_dict_tensors
from rankscope.snapshot import Plan
from rankscope.store.files import sync_folder

Reference = str | Path | nn.Module | Mapping[str, Tensor] | None


def describe_reference(reference: Reference) -> str:
    """Return the run's attribute `reference`."""
    if isinstance(reference, str | Path):
        return str(reference)
    return "none" if reference is None else "given weights"


def given_reference(reference: Reference, plan: Plan) -> dict[str, Tensor] | None:
    """Return the weights a user gave as reference, or None for "init" and None."""
    if reference is None or reference == "init":
        return None
    if isinstance(reference, str | Path):
        tensors = state_dict_tensors(_load(Path(reference)), known=plan.parameters)
    elif isinstance(reference, nn.Module):
        tensors = named_tensors(reference)
    else:
        tensors = state_dict_tensors(reference, known=plan.parameters)
    missing = [name for name in plan.parameters if name not in tensors]
    if missing:
        raise ValueError(
            f"the reference lacks {len(missing)} of the tracked tensors, such as {missing[0]!r}; "
            "pass a checkpoint of the same model"
        )
    weights = {name: full_tensor(tensors[name]).clone() for name in plan.parameters}
    for reading in plan.readings:
        reading.view(weights[reading.parameter])  # raises if a shape does not fit
    return weights


def _load(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(
            f'reference {str(path)!r} is not a file; pass "init", None or a checkpoint'
        )
    if path.suffix == ".safetensors":
        return _load_safetensors(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as damage:  # torch's unpickler raises nearly anything on bytes of no pickle
        raise ValueError(f"{path} cannot be read as a checkpoint: {damage}") from None
    if not isinstance(loaded, Mapping):
        raise ValueError(f"reference {str(path)!r} does not hold a state dict (names to tensors)")
    return dict(loaded)


def _load_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as damage:
        raise ValueError(f"{path} is damaged and cannot be read: {damage}") from None


class InitialWeights:
    """The weights of a run's first snapshot, stored in the run for when it is resumed."""

    def __init__(self, run: Path) -> None:
        self._file = run / "reference.safetensors"

    @property
    def stored(self) -> bool:
        """Whether the first snapshot has been taken."""
        return self._file.exists()

    def load(self) -> dict[str, Tensor] | None:
        """Return the weights, or None before the first snapshot."""
        return _load_safetensors(self._file) if self.stored else None

    def save(self, tensors: Mapping[str, Tensor], *, durable: bool) -> None:
        """Store the weights in one step; `durable` waits for the disk."""
        partial = self._file.with_suffix(".partial")
        try:
            save_file(
                {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, partial
            )
            if durable:
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
            partial.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)  # a full disk needs the room
            raise
        if durable:
            sync_folder(self._file.parent)
