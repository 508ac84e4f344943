"""Copies of a model whose matrices are written over, parts of fused tensors included."""

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping

import torch
from jaxtyping import Num
from torch import Tensor, nn

from rankscope.matrices import Reading, View, Views, named_tensors, plain_model, views


def require_whole(model: nn.Module) -> None:
    """Raise ValueError if the weights are shards, which a copy on one rank cannot hold."""
    if any(hasattr(tensor, "full_tensor") for tensor in named_tensors(model).values()):
        raise ValueError(
            "the model is sharded, and only a whole one can be changed; on every rank, gather its "
            "weights with torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
            "options=StateDictOptions(full_state_dict=True)), then load them into an unsharded "
            "model and pass that"
        )


def plain_copy(model: nn.Module) -> tuple[nn.Module, dict[str, str]]:
    """Return a copy that stores the weights it multiplies by, as plain parameters.

    Weight norm, pruning masks and adapters become part of the weights. The second result says, by
    tensor, where that is not possible.
    """
    # torch copies no tensor that has a graph, such as a weight that a hook computed.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    plain = plain_model(copy.deepcopy(model, computed))
    return plain.model, plain.notes


def require_replaceable(matrices: Views, refused: Mapping[str, str]) -> None:
    """Raise ValueError if a matrix is read from one of the `refused` tensors."""
    for name, reading in matrices.readings.items():
        if reading.parameter in refused:
            raise ValueError(
                f"matrix {name!r} cannot be replaced: {refused[reading.parameter]}; leave it whole "
                "with skip=, or merge its parts first"
            )


def last_linear(model: nn.Module) -> set[str]:
    """Return the names of the matrices read from the last `nn.Linear`; none without one."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    own = {id(tensor) for layer in layers[-1:] for tensor in layer.parameters()}
    readings, tensors = views(model).readings, named_tensors(model)
    return {name for name, reading in readings.items() if id(tensors[reading.parameter]) in own}


def require_apart(matrices: Views, changes: Mapping[str, Hashable]) -> None:
    """Raise ValueError if two matrices share entries, unless they are one and change alike.

    Query heads may meet the same key head: its entries are then read under several names.
    changes: what is done to each matrix, by name.
    """
    tensors, names = matrices.tensors, list(matrices.readings)
    for parameter in dict.fromkeys(reading.parameter for reading in matrices.readings.values()):
        own = [name for name in names if matrices.readings[name].parameter == parameter]
        if len(own) < 2:
            continue
        shape = tensors[parameter].shape
        positions = torch.arange(shape.numel()).reshape(shape)
        owner = torch.full((shape.numel(),), -1)
        for number, name in enumerate(own):
            entries = matrices.readings[name].view(positions).W.flatten()
            before = owner[entries]
            for other in before[before >= 0].unique().tolist():
                earlier = matrices.readings[own[other]].view(positions).W.flatten()
                if changes[name] != changes[own[other]] or not torch.equal(earlier, entries):
                    raise ValueError(
                        f"matrices {own[other]!r} and {name!r} share entries and cannot be changed "
                        "in two ways; name one of them, or skip the other"
                    )
            owner[entries] = number


@torch.no_grad()
def replace_matrices(
    model: nn.Module, matrices: Views, replacement: Callable[[View], Tensor]
) -> None:
    """Write replacement(view) over each of the `matrices` of `model`, in place."""
    by_parameter: dict[str, list[Reading]] = {}
    for reading in matrices.readings.values():
        by_parameter.setdefault(reading.parameter, []).append(reading)
    tensors = named_tensors(model)
    for parameter, readings in by_parameter.items():
        changes = [(reading, replacement(matrices[reading.name])) for reading in readings]
        tensors[parameter].copy_(rewritten(tensors[parameter], changes))


def rewritten(
    tensor: Num[Tensor, "..."], matrices: Iterable[tuple[Reading, Tensor]]
) -> Num[Tensor, "..."]:
    """Return a copy of `tensor` from which each reading reads the matrix given with it.

    A view may be a copy (swapped axes), so writing to it would not reach the tensor. Reading a
    tensor of positions tells where every entry of a matrix is stored.
    """
    entries = tensor.detach().flatten().clone()
    positions = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    for reading, W in matrices:
        entries[reading.view(positions).W.flatten()] = W.flatten().to(entries.dtype)
    return entries.reshape(tensor.shape)
