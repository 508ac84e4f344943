"""Names of modules and tensors without wrappers.

Wrappers are DDP, FSDP, torch.compile, activation checkpointing and weight averaging.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from rankscope.matrices.arrays import as_tensor
from rankscope.matrices.reading import dotted

# Child names that only wrappers use.
SEGMENTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside any wrappers."""
    for segment in SEGMENTS:
        if (inner := module._modules.get(segment)) is not None:
            return unwrap(inner)
    # People use the name "module" too, so here the class decides.
    if isinstance(module, DataParallel | DistributedDataParallel | AveragedModel):
        return unwrap(module.module)
    return module


def walk(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield modules with names without wrappers, parents first; a shared one under each name."""
    module = unwrap(module)
    yield name, module
    for key, child in module._modules.items():
        if child is not None:
            yield from walk(child, dotted(name, key))


def children(module: nn.Module) -> dict[str, nn.Module]:
    """Return the direct children, unwrapped."""
    return {key: unwrap(child) for key, child in module._modules.items() if child is not None}


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name without wrappers; a tied tensor under each name."""
    return {
        dotted(name, key): tensor
        for name, module in walk(model)
        for key, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }


def full_tensor(tensor: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return the plain detached tensor. A DTensor is gathered, so every rank must call this."""
    tensor = tensor.detach()
    gathered: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered


def state_dict_tensors(
    state_dict: Mapping[Any, object], *, known: Collection[str] = ()
) -> dict[str, Tensor]:
    """Return the tensors of a state dict by name without wrappers.

    A leading "module." is removed if every matrix has it, unless a known name has it too.
    """
    if unnamed := [key for key in state_dict if not isinstance(key, str)]:
        raise ValueError(
            f"state dict: expected names as keys, got {type(unnamed[0]).__name__} {unnamed[0]!r}; "
            "pass the dict of weights itself, such as checkpoint['model']"
        )
    tensors = {
        key: as_tensor(key, value)
        for key, value in state_dict.items()
        if isinstance(value, Tensor)
        or (isinstance(value, np.ndarray) and value.dtype.kind in "fiub")
    }
    if not tensors:
        raise ValueError(
            f"state dict: expected tensors by name, got {list(state_dict)[:5]} without any; "
            "pass the dict of weights itself, such as checkpoint['model']"
        )
    plain = names_without_wrappers({key: t.ndim for key, t in tensors.items()}, known=known)
    return {plain[key]: tensor for key, tensor in tensors.items()}


def names_without_wrappers(
    axes: Mapping[str, int], *, known: Collection[str] = ()
) -> dict[str, str]:
    """Return names without wrappers by stored name; `axes` counts the axes of each tensor.

    A leading "module." is removed if every matrix has it, unless a known name has it too.
    """
    matrices = [name for name, count in axes.items() if count >= 2]
    prefixed = bool(matrices) and all(name.startswith("module.") for name in matrices)
    wrapped = prefixed and not any(name.startswith("module.") for name in known)
    return {
        name: strip_wrappers(name.removeprefix("module.") if wrapped else name) for name in axes
    }


def strip_wrappers(name: str) -> str:
    """Return a tensor's name without the segments that only wrappers use."""
    return ".".join(part for part in name.split(".") if part not in SEGMENTS)
