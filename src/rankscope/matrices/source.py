"""Sources of weights: a model, a state dict, or a file that holds one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

Source = nn.Module | Mapping[str, Any] | str | os.PathLike[str]

# Keys under which training scripts keep the weights beside the state of the optimizer.
WEIGHTS = ("state_dict", "model_state_dict", "model")


def opened(source: object) -> nn.Module | Mapping[Any, Any]:
    """Return the model or state dict itself, or the state dict in the file that `source` names."""
    if isinstance(source, nn.Module | Mapping):
        return source
    if isinstance(source, str | os.PathLike):
        return load_state_dict(Path(source))
    hint = "; singular_values() takes a matrix" if isinstance(source, Tensor) else ""
    raise ValueError(
        "expected a model, a state dict or the path of a checkpoint, got "
        f"{type(source).__name__}{hint}"
    )


def load_state_dict(path: Path) -> Mapping[Any, Any]:
    """Return the tensors in a .safetensors file or a file of `torch.save`, mapped into memory."""
    path = path.expanduser()
    if not path.is_file():
        raise ValueError(
            f"{str(path)!r} "
            + ("is not a file" if path.exists() else "does not exist")
            + "; pass the path of a .safetensors, .pt or .bin checkpoint"
        )
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as damage:
            raise ValueError(f"{str(path)!r} is damaged and cannot be read: {damage}") from None
    loaded = _load_torch(path)
    if isinstance(loaded, Mapping) and not any(isinstance(x, Tensor) for x in loaded.values()):
        inner = [loaded[key] for key in WEIGHTS if isinstance(loaded.get(key), Mapping)]
        inner = inner or [value for value in loaded.values() if _holds_tensors(value)]
        loaded = inner[0] if inner else loaded
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f"{str(path)!r} holds a {type(loaded).__name__}, expected a state dict; "
            "save model.state_dict()"
        )
    return loaded


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(x, Tensor) for x in value.values())


def _load_torch(path: Path) -> object:
    # Only files in torch's newer format, a zip archive, can be mapped into memory.
    with path.open("rb") as file:
        mmap = file.read(4) == b"PK\x03\x04"
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch's unpickler raises nearly anything on bytes of no pickle
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{str(path)!r} cannot be read as a checkpoint of tensors ({first_line}); "
            "save model.state_dict() with torch.save or as .safetensors"
        ) from None
