"""A context in which a forward pass leaves the model and the random numbers as they were."""

import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Attributes of a module whose contents are restored by other means, or are not to be.
APART = ("_parameters", "_buffers", "_modules")
DEEP = 4  # containers and objects inside each other
CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Record all parameters in eval mode; then restore the module and the random numbers.

    Restored are modes, gradients, buffers, and attributes, with what lists and dicts among them
    hold. A cached activation would keep the graph, and a tensor of a graph cannot be copied.
    """
    modes = [(part, part.training) for part in module.modules()]
    parameters = [(param, param.requires_grad, param.grad) for param in module.parameters()]
    buffers = [(part, dict(part._buffers)) for part in module.modules()]
    attributes = Attributes(module)
    tensors = (*module.parameters(), *module.buffers())
    contents = [
        (tensor, tensor.detach().clone())
        for tensor in (*module.buffers(), *attributes.tensors)
        if not tensor.is_meta
    ]
    devices = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
    try:
        with random_state(devices), torch.inference_mode(False):
            module.eval()
            for parameter, *_ in parameters:
                # A forward pass that calls backward() must not add to what training has gathered.
                parameter.grad = None
                parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
            with torch.enable_grad():
                yield
    finally:
        for part, mode in modes:
            part.training = mode
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for part, named_buffers in buffers:
            part._buffers.clear()
            part._buffers.update(named_buffers)
        attributes.restore()
        for tensor, content in contents:
            _restore(tensor, content)


@contextmanager
def random_state(devices: Collection[int] = ()) -> Iterator[None]:
    """Restore the random numbers of torch, Python and NumPy."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=sorted(devices)):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _restore(tensor: Tensor, content: Tensor) -> None:
    # Write only if bits differ: an expanded tensor cannot be written to.
    if not torch.equal(_bits(tensor), _bits(content)):
        with torch.no_grad():
            tensor.copy_(content)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Attributes:
    """Attributes of all parts of a module, and what containers and objects among them hold.

    Other threads may work with an object that a module refers to, so in objects only tensors are
    restored.
    """

    def __init__(self, module: nn.Module) -> None:
        self.tensors: list[Tensor] = []
        self._containers: list[tuple[Any, Any, bool]] = []  # one, a copy, whether only tensors
        self._seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        for part in module.modules():
            self._containers.append((vars(part), dict(vars(part)), False))
            values = [x for key, x in vars(part).items() if key not in APART]
            self._visit_all(values, depth=1, only_tensors=False)

    def _visit_all(self, values: Any, *, depth: int, only_tensors: bool) -> None:
        for value in values:
            if id(value) not in self._seen and not isinstance(value, str | int | float | nn.Module):
                self._seen.add(id(value))
                self._visit(value, depth, only_tensors)

    def _visit(self, value: Any, depth: int, only_tensors: bool) -> None:
        if isinstance(value, Tensor):
            if type(value) is Tensor and value.layout == torch.strided:
                self.tensors.append(value)
        elif depth > DEEP or isinstance(value, CODE):
            return
        elif isinstance(value, dict | list | set | deque):
            self._containers.append((value, value.copy(), only_tensors))
            values = value.values() if isinstance(value, dict) else value
            self._visit_all(list(values), depth=depth + 1, only_tensors=only_tensors)
        elif isinstance(value, tuple):
            self._visit_all(value, depth=depth + 1, only_tensors=only_tensors)
        elif isinstance(getattr(value, "__dict__", None), dict):
            self._containers.append((vars(value), dict(vars(value)), True))
            self._visit_all(list(vars(value).values()), depth=depth + 1, only_tensors=True)

    def restore(self) -> None:
        """Give every container what it held."""
        for container, content, only_tensors in self._containers:
            if isinstance(container, dict):
                _restore_dict(container, content, only_tensors=only_tensors)
            elif _differs(container, content) and (not only_tensors or _has_tensors(container)):
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(content)


def _restore_dict(
    present: dict[Any, Any], former: Mapping[Any, Any], *, only_tensors: bool
) -> None:
    for key, value in list(present.items()):
        changed = key not in former or former[key] is not value
        if not changed or (only_tensors and not isinstance(value, Tensor)):
            continue
        if key in former:
            present[key] = former[key]
        else:
            del present[key]
    # One by one: a frozen dict of a config has nothing to restore and refuses `update`.
    for key in former.keys() - present.keys() if not only_tensors else ():
        present[key] = former[key]


def _differs(present: Any, former: Any) -> bool:
    return list(map(id, present)) != list(map(id, former))


def _has_tensors(container: Any) -> bool:
    return any(isinstance(value, Tensor) for value in container)
