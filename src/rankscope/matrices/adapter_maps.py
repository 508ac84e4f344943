"""Weights of layers whose adapters have no formula here, from what the layers do.

LoHa, OFT, IA3, VeRA and other adapters of PEFT leave a linear layer linear. What it does to the
identity is its weight. A table of embeddings is what the layer returns for every token.
"""

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from rankscope.matrices.adapters import BASE
from rankscope.matrices.effective import Step
from rankscope.matrices.parametrization import named_parts, without_hooks

LINEAR = 1e-4  # largest deviation of a linear layer from its matrix, relative to its outputs


def map_steps(module: nn.Module) -> tuple[Step, ...] | None:
    """Return the operation of all active adapters of a layer; None if the layer is of no such kind.

    Names are relative to the module.
    """
    base = module._modules[BASE]
    weight = None if base is None else base._parameters.get("weight")
    plain = weight is not None and weight.is_floating_point() and weight.itemsize > 1
    if base is None or not plain or not (_is_linear(base) or isinstance(base, nn.Embedding)):
        return None
    parts = tuple(name for name, _ in _own_parts(module))
    return (Step(f"adapter {_method(module)}", parts, module=BASE),)


def _method(module: nn.Module) -> str:
    """Return the name of PEFT's class for a method, such as LoHaLayer; else that of the layer."""
    names = [kind.__name__ for kind in type(module).__mro__]
    methods = (name for name in names if name.endswith("Layer") and name != "BaseTunerLayer")
    return next(methods, names[0])


def _is_linear(base: nn.Module) -> bool:
    plain = type(base).forward is nn.Linear.forward
    return plain or type(base).__name__ == "Conv1D"


def _own_parts(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the adapters."""
    for name, tensor in named_parts(module):
        if not name.startswith(f"{BASE}."):
            yield name, tensor


def adapted(module: nn.Module, name: str, W: Tensor, parts: Mapping[str, Tensor]) -> Tensor:
    """Return the weight, stored as W is, that a layer with adapters makes of the base weight W.

    A copy in eval mode computes in float64, without hooks and without the bias of the base.
    """
    if W.is_meta:
        return W
    base = module._modules[BASE]
    assert base is not None
    layer = _copied(module, base, name, W, parts)
    devices = [W.device.index] if W.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        if isinstance(base, nn.Embedding):
            result: Tensor = layer.forward(torch.arange(len(W), device=W.device))
        else:
            transposed = isinstance(base, nn.Linear)
            result = _matrix(layer, W.shape[1] if transposed else W.shape[0], W.device)
            result = result.mT if transposed else result
    return result.detach().to(W.dtype)


def _copied(
    module: nn.Module, base: nn.Module, name: str, W: Tensor, parts: Mapping[str, Tensor]
) -> nn.Module:
    memo = without_hooks(module)
    prefix = f"{name}." if name else ""
    for key, stored in _own_parts(module):
        memo[id(stored)] = _double(parts[f"{prefix}{key}"])
    memo[id(base._parameters["weight"])] = nn.Parameter(_double(W), requires_grad=False)
    bias = base._parameters.get("bias")
    if bias is not None:
        zero = torch.zeros(bias.shape, dtype=torch.float64, device=W.device)
        memo[id(bias)] = nn.Parameter(zero, requires_grad=False)
    return copy.deepcopy(module, memo).eval()


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def _matrix(layer: nn.Module, width: int, device: torch.device) -> Tensor:
    """Return what a layer without bias does to the identity, row by row: (in, out)."""
    identity = torch.eye(width, dtype=torch.float64, device=device)
    trials = torch.stack([torch.zeros_like(identity[0]), identity.sum(0), identity[::2].sum(0)])
    outputs: Tensor = layer.forward(torch.cat([trials, identity]))
    shift, rows = outputs[0], outputs[3:] - outputs[0]
    deviation = outputs[1:3] - shift - trials[1:] @ rows
    if not bool(deviation.abs().max() <= LINEAR * rows.abs().sum(0).max()):
        raise ValueError(f"a layer with adapters {type(layer).__name__} is not linear")
    return rows
