"""Copy of one attention module with random weights, called again and again with some changed."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map

from rankscope.matrices.adapters import BASE, is_adapter
from rankscope.matrices.parametrization import without_hooks
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.wrappers import walk
from rankscope.verification.position import AtOnePosition, address, storage
from rankscope.verification.recording import Recorder, Recording, in_plain_steps

Rows = dict[str, Tensor]  # for each parameter, which entries change
LOGIT_SIZE = 3.0  # a typical logit: neither too small to matter nor saturating a softmax


class Trial:
    """Copy of an attention module that is called with random weights.

    How heads are laid out is a matter of the code, not of the weights. Random ones show it even
    where those of the model are zero or the identity.
    """

    def __init__(self, module: nn.Module, name: str, args: Any, kwargs: Any, dtype: Any) -> None:
        self._prefix = name
        self._arguments = tree_map(lambda leaf: _plain(leaf, dtype), (args, kwargs))
        self.module = bare_copy(module, dtype)
        self._generator = torch.Generator().manual_seed(0)
        self._randomise()
        self._noise: dict[str, Tensor] = {}
        self._statistics: list[Any] | None = None
        self._watched: dict[str, Tensor] = {}

    def begin(self, queries: Mapping[str, Tensor], watched: list[str]) -> Recording:
        """Call the module unchanged, with logits of a moderate size, and return that call."""
        self._watched = {name: self.parameter(name) for name in watched}
        logits = self._call().recording.logits
        for name, entries in queries.items():
            self._noise[name] = torch.zeros_like(self.parameter(name))
            self._noise[name].view(-1)[entries] = -self.parameter(name).view(-1)[entries]
        without = self.run(dict(queries)).logits
        self._noise.clear()
        size = _typical_difference(logits, without)
        for name, entries in queries.items():
            self.parameter(name).view(-1)[entries] *= LOGIT_SIZE / size if size else 1.0
        self._statistics = self._call().statistics
        return self.run({})

    def run(self, rows: Rows, *, times: float = 1.0) -> Recording:
        """Call the module with noise added to some entries of its weights."""
        with self._changed(rows, times):
            return self._call().recording

    def run_at_one_position(self, rows: Rows, place: float) -> Recording:
        """Call the module with noise that acts at one position, some part of the input's length."""
        with self._changed(rows, 1.0):
            changed = {address(t): storage(t) for t in map(self.parameter, rows)}
        recorder = AtOnePosition(self._watched, self._statistics, changed=changed, place=place)
        return self._call(recorder).recording

    def parameter(self, name: str) -> Tensor:
        """Return the copy's tensor for a parameter of the model; it computes with it directly."""
        path = name.removeprefix(f"{self._prefix}.") if self._prefix else name
        tensor = _site(self.module, path)
        if not tensor.is_contiguous():
            raise ValueError(f"{name!r} is not contiguous")
        return tensor

    def entries(self, reading: Reading) -> Tensor:
        """Return the positions, in the flat parameter, of a matrix: (m, n)."""
        parameter = self.parameter(reading.parameter)
        positions = torch.arange(parameter.numel()).reshape(parameter.shape)
        return reading.view(positions).W

    def _call(self, recorder: Recorder | None = None) -> Recorder:
        recorder = recorder or Recorder(self._watched, self._statistics)
        args, kwargs = copy.deepcopy(self._arguments)  # a module may write to a cache
        self._seed()
        with torch.no_grad(), in_plain_steps(), recorder:
            self.module(*args, **kwargs)
        return recorder

    def _seed(self) -> None:
        """Let each call draw the same random numbers; `unchanged` restores the generators."""
        # torch.manual_seed would also seed devices that the model does not use, for good.
        torch.default_generator.manual_seed(0)
        tensors = (*self.module.parameters(), *self.module.buffers())
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            torch.cuda.default_generators[device.index].manual_seed(0)

    @contextmanager
    def _changed(self, rows: Rows, times: float) -> Iterator[None]:
        before = {name: self.parameter(name).clone() for name in rows}
        for name, entries in rows.items():
            if name not in self._noise:
                self._noise[name] = before[name] * 0.5 * self._normal(before[name])
            noise = self._noise[name].view(-1)[entries]
            self.parameter(name).view(-1)[entries] += times * noise
        try:
            yield
        finally:
            for name, values in before.items():
                self.parameter(name).copy_(values)

    def _randomise(self) -> None:
        for name, parameter in self.module.named_parameters():
            if name.endswith("bias") and parameter.ndim == 1:
                parameter.zero_()  # larger than the rest where inputs are small
            elif parameter.is_floating_point():
                noise = self._random(parameter)
                parameter.copy_(noise if parameter.ndim > 1 else parameter + 0.1 * noise)

    def _random(self, like: Tensor) -> Tensor:
        """Return normal numbers, for a matrix of a size that keeps the scale of its inputs."""
        fan_in = like[0].numel() if like.ndim > 1 else 1
        return self._normal(like) / math.sqrt(max(fan_in, 1))

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator, dtype=torch.float64).to(like)


def bare_copy(module: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Return a copy in eval mode without gradients, hooks, parametrizations and adapters."""
    # Hooks may belong to somebody who records activations, and must see one call only.
    duplicate = _without_adapters(copy.deepcopy(module, _shared_memory(module)))
    duplicate.eval()  # returns nothing where a class overrides `train`
    duplicate.requires_grad_(False)
    for part in list(duplicate.modules()):
        for key in {name.removesuffix("_orig").removesuffix("_v") for name in part._parameters}:
            if isinstance(vars(part).get(key), Tensor):  # old-style pruning and normalisation
                part.register_parameter(key, nn.Parameter(vars(part).pop(key)))
        if parametrize.is_parametrized(part):
            _remove_parametrizations(part)
    duplicate.requires_grad_(False)
    return duplicate if dtype is None else duplicate.to(dtype)


def _without_adapters(module: nn.Module) -> nn.Module:
    """Return the module with base layers in place of layers with adapters.

    An adapter that rotates the inputs of a layer, as OFT does, would hide which of them is which.
    """
    if is_adapter(module):
        return _without_adapters(module.get_submodule(BASE))
    for key, child in module._modules.items():
        if child is not None:
            module._modules[key] = _without_adapters(child)
    return module


def _remove_parametrizations(part: nn.Module) -> None:
    """Make the tensors that a copied module computes its parameters."""
    # torch's own function changes the class, which the copy shares with the original.
    names = part._modules["parametrizations"]
    assert isinstance(names, nn.ModuleDict)
    tensors = {name: getattr(part, name).detach().clone() for name in names}
    part.__class__ = parametrize.type_before_parametrizations(part)
    del part._modules["parametrizations"]
    for name, tensor in tensors.items():
        part.register_parameter(name, nn.Parameter(tensor))


def _shared_memory(module: nn.Module) -> dict[int, Any]:
    """Return a memo for deepcopy: no hooks; tensors of a graph, which it refuses, are detached."""
    memo = without_hooks(module)
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return memo


def _site(module: nn.Module, path: str) -> Tensor:
    """Return the tensor a module computes with, for the name of a parameter of the model."""
    path = path.replace(".parametrizations.", ".").removeprefix("parametrizations.")
    holder, _, key = path.rpartition(".")
    if key.startswith("original"):  # `parametrizations.weight.original`
        holder, _, key = holder.rpartition(".")
    part = dict(walk(module)).get(holder)
    if part is None:  # `bare_copy` has no base layers
        raise ValueError(f"{path!r} is read without its adapter")
    for candidate in (key.removesuffix("_orig").removesuffix("_v"), key):
        tensor = getattr(part, candidate, None)
        if isinstance(tensor, Tensor):
            return tensor.detach()
    raise ValueError(f"{dotted(holder, key)!r} is not a tensor of the module")


def _plain(leaf: Any, dtype: torch.dtype | None) -> Any:
    """Return an argument as a leaf without gradient; numbers in `dtype`."""
    if not isinstance(leaf, Tensor):
        return leaf
    leaf = leaf.detach().clone()
    return leaf.to(dtype) if dtype is not None and leaf.is_floating_point() else leaf


def _typical_difference(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the largest median difference in any of the tensors; masked entries do not count."""
    sizes = []
    for x, y in zip(first, second, strict=True):
        difference = (x.double() - y.double()).abs()[x.abs() < 1e30]
        sizes.append(float(difference[difference > 0].median()) if difference.any() else 0.0)
    return max(sizes, default=0.0)
