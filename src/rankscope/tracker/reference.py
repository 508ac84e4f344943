"""Reference weights: what changes are measured from."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import google_crc32c
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.checkpoints import open_checkpoint
from rankscope.matrices import full_tensor, reference_weights
from rankscope.snapshot import Plan
from rankscope.store.chunk import Damage
from rankscope.store.files import sync_folder
from rankscope.store.source import Folder

CHECKSUM = "rankscope_crc32c"  # an entry of the file's metadata
MOST_BYTES = 2**44

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
    source = _load(Path(reference).expanduser()) if isinstance(reference, str | Path) else reference
    given = reference_weights(source, plan.parameters, plan.effective)
    weights = {name: full_tensor(given[name]).clone() for name in plan.parameters}
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
    checkpoint = open_checkpoint(path)
    readable = (name for name, stored in checkpoint.tensors.items() if not stored.refusal)
    return {name: checkpoint.read(name) for name in readable}


def _load_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the file and compare it with its checksum, if rankscope gave it one."""
    try:
        file = Folder(path.parent).open(path.name, most_bytes=MOST_BYTES)
        if file is not None:  # it is a file, not a pipe that would be waited for
            file.close()
        with safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, Damage, OSError, ValueError, RuntimeError, TypeError) as damage:
        raise ValueError(f"{path} is damaged and cannot be read: {damage}") from None
    if CHECKSUM in metadata and metadata[CHECKSUM] != weights_checksum(tensors):
        raise ValueError(f"{path} is damaged: checksum differs; restore it, or choose another run")
    return tensors


def weights_checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return the CRC32C of names, types, shapes and values."""
    value = 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        header = f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode()
        value = google_crc32c.extend(value, header)
        value = google_crc32c.extend(value, tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"{value:08x}"


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
            weights = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            save_file(weights, partial, metadata={CHECKSUM: weights_checksum(weights)})
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
