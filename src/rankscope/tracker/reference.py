"""What a change is measured from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rankscope.matrices import full_tensor, named_tensors, state_dict_tensors

Reference = str | Path | nn.Module | Mapping[str, Tensor] | None


def given_reference(reference: Reference, parameters: Sequence[str]) -> dict[str, Tensor] | None:
    """The reference weights a user named, or None for "init" and for no reference at all."""
    if reference is None or reference == "init":
        return None
    if isinstance(reference, str | Path):
        tensors = state_dict_tensors(_load(Path(reference)), known=parameters)
    elif isinstance(reference, nn.Module):
        tensors = named_tensors(reference)
    else:
        tensors = state_dict_tensors(reference, known=parameters)
    missing = [name for name in parameters if name not in tensors]
    if missing:
        raise ValueError(
            f"the reference lacks {len(missing)} of the tracked tensors, {missing[0]!r} for one; "
            "pass a checkpoint of the same model"
        )
    return {name: full_tensor(tensors[name]).clone() for name in parameters}


def _load(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(
            f'reference {str(path)!r} is not a file; pass "init", None or a checkpoint'
        )
    if path.suffix == ".safetensors":
        return load_file(path)
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(loaded, Mapping):
        raise ValueError(f"reference {str(path)!r} does not hold a state dict (names to tensors)")
    return dict(loaded)


class InitialWeights:
    """The weights of a run's first snapshot, kept with it so that a resumed run has them."""

    def __init__(self, run: Path) -> None:
        self._file = run / "reference.safetensors"

    def load(self) -> dict[str, Tensor] | None:
        """None before the first snapshot."""
        return load_file(self._file) if self._file.exists() else None

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        partial = self._file.with_suffix(".partial")
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, partial)
        partial.replace(self._file)
