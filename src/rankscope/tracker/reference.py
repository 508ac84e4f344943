"""Reference weights: what changes are measured from."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import google_crc32c
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.checkpoints import open_checkpoint, tensor_file
from rankscope.matrices import full_tensor, reference_weights
from rankscope.snapshot import Plan
from rankscope.store.chunk import Damage
from rankscope.store.files import sync_folder
from rankscope.store.source import Folder

CHECKSUM = "rankscope_crc32c"  # an entry of the file's metadata
NO_CHECKSUM = "0" * 8  # until the file is written
MOST_BYTES = 2**44

Reference = str | Path | nn.Module | Mapping[str, Tensor] | None


def describe_reference(reference: Reference) -> str:
    """Return the run's attribute `reference`."""
    if isinstance(reference, str | Path):
        return str(reference)
    return "none" if reference is None else "given weights"


def given_reference(
    reference: Reference, plan: Plan, *, only: Collection[str] | None = None
) -> dict[str, Tensor] | None:
    """Return the weights a user gave as reference, or None for "init" and None.

    only: names of those to return; all are checked.
    """
    if reference is None or reference == "init":
        return None
    source = _load(Path(reference).expanduser()) if isinstance(reference, str | Path) else reference
    known = reference_weights(source, plan.parameters, plan.effective)
    weights: dict[str, Tensor] = {}
    for name in plan.parameters:
        weight = full_tensor(known[name])
        for reading in plan.readings:
            if reading.parameter == name:
                reading.view(weight)  # raises if a shape does not fit
        if only is None or name in only:
            weights[name] = weight.clone()
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


def _load_safetensors(path: Path, *, only: Collection[str] | None = None) -> dict[str, Tensor]:
    """Read the file, or `only` some tensors, and compare it with its checksum if it has ours."""
    try:
        file = Folder(path.parent).open(path.name, most_bytes=MOST_BYTES)
        if file is not None:  # it is a file, not a pipe that would be waited for
            file.close()
        with safe_open(path, "pt") as opened:
            metadata = opened.metadata() or {}
            names = set(opened.keys())
            wanted = names if only is None else names & set(only)
            tensors = {name: opened.get_tensor(name) for name in sorted(wanted)}
            read = tensors.__getitem__ if wanted == names else opened.get_tensor
            checksum = weights_checksum(names, read) if CHECKSUM in metadata else None
    except (SafetensorError, Damage, OSError, ValueError, RuntimeError, TypeError) as damage:
        raise ValueError(f"{path} is damaged and cannot be read: {damage}") from None
    if metadata.get(CHECKSUM) != checksum:
        raise ValueError(f"{path} is damaged: checksum differs; restore it, or choose another run")
    return tensors


def weights_checksum(names: Iterable[str], read: Callable[[str], Tensor]) -> str:
    """Return the CRC32C of names, types, shapes and values; tensors are read one at a time."""
    value = 0
    for name in sorted(names):
        tensor = read(name).contiguous()
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

    def load(self, *, only: Collection[str] | None = None) -> dict[str, Tensor] | None:
        """Return the weights, or `only` some of them; None before the first snapshot."""
        return _load_safetensors(self._file, only=only) if self.stored else None

    def save(
        self,
        tensors: Mapping[str, Tensor],
        *,
        durable: bool,
        elsewhere: Sequence[tensor_file.Source] = (),
    ) -> None:
        """Store the weights in one step; `durable` waits for the disk.

        elsewhere: weights that other ranks hold.
        """
        partial = self._file.with_suffix(".partial")
        try:
            if elsewhere:
                _write_streamed(partial, [tensor_file.source_of(tensors), *elsewhere])
            else:
                weights = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
                checksum = weights_checksum(weights, weights.__getitem__)
                save_file(weights, partial, metadata={CHECKSUM: checksum})
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


def _write_streamed(path: Path, sources: Sequence[tensor_file.Source]) -> None:
    """Write the file tensor by tensor; its checksum, which comes first, is put in at the end."""
    tensor_file.write(path, sources, metadata={CHECKSUM: NO_CHECKSUM})
    with safe_open(path, "pt") as opened:
        checksum = weights_checksum(set(opened.keys()), opened.get_tensor)
    tensor_file.replace_in_header(path, NO_CHECKSUM, checksum)
