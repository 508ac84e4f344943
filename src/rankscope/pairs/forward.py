"""One forward pass that leaves the model as it was, and what recurrent modules did in it."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rankscope.matrices.wrappers import unwrap, walk
from rankscope.pairs.graph import Edge
from rankscope.pairs.recurrent import Recurrent, recurrent


@dataclass(frozen=True)
class Call:
    """One call of a recurrent module: the tensors it took and gave, as edges of the graph.

    `final` are the last states of every layer and direction, which cells do not give.
    """

    unit: Recurrent
    taken: Edge | None
    in_axis: int
    output: Edge | None
    final: Edge | None
    cell: Edge | None


@dataclass(frozen=True)
class Trace:
    """The tensors that the forward pass gave, and the calls of recurrent modules on the way."""

    outputs: tuple[Tensor, ...]
    calls: tuple[Call, ...]


def trace(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    """One eager forward pass of the unwrapped model in eval mode, recorded by autograd."""
    module = unwrap(model)
    calls: list[Call] = []
    with _unchanged(module), _eager(), _recorded(module, calls):
        try:
            result = module(*inputs, **kwargs)
        except Exception as error:
            why = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"the forward pass of {type(module).__name__} failed on the example inputs "
                f"({type(error).__name__}: {why}); give inputs as in training"
            ) from error
    outputs = tuple(tensor for tensor in _tensors(result) if tensor.grad_fn is not None)
    if not outputs:
        raise ValueError(
            f"the forward pass of {type(module).__name__} returned no tensor that depends on its "
            "parameters; use a model that returns its outputs and computes them with gradients on"
        )
    return Trace(outputs, tuple(calls))


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Eval mode, all parameters recorded; then modes, gradients, buffers, random state put back."""
    modes = [(each, each.training) for each in module.modules()]
    parameters = [(each, each.requires_grad, each.grad) for each in module.parameters()]
    buffers = [(each, dict(each._buffers)) for each in module.modules()]
    contents = [(each, each.detach().clone()) for each in module.buffers() if not each.is_meta]
    tensors = (*module.parameters(), *module.buffers())
    devices = {each.device.index for each in tensors if each.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=sorted(devices)), torch.inference_mode(False):
            module.eval()
            for parameter, *_ in parameters:
                # A forward pass that calls backward() must not add to what training has gathered.
                parameter.grad = None
                parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
            with torch.enable_grad():
                yield
    finally:
        for each, mode in modes:
            each.training = mode
        for parameter, needed, gradient in parameters:
            parameter.requires_grad_(needed)
            parameter.grad = gradient
        for each, named in buffers:
            each._buffers.clear()
            each._buffers.update(named)
        for buffer, content in contents:
            _put_back(buffer, content)


def _put_back(buffer: Tensor, content: Tensor) -> None:
    # Writing only where bits differ: a buffer may be an expanded tensor, which cannot be written.
    if not torch.equal(_bits(buffer), _bits(content)):
        with torch.no_grad():
            buffer.copy_(content)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled parts run as written: a compiled graph is one node to autograd."""
    # Importing the compiler only to switch it off would take seconds.
    compiler_used = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if compiler_used else ExitStack():
        yield


@contextmanager
def _recorded(module: nn.Module, calls: list[Call]) -> Iterator[None]:
    """Notes every call of a recurrent module."""
    units: dict[nn.Module, Recurrent] = {}
    for name, each in walk(module):
        unit = recurrent(each, name)
        if unit is not None:
            units.setdefault(each, unit)

    def note(each: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        taken = _content(args[0] if args else kwargs["input"])
        calls.append(_call(units[each], taken, result))

    with ExitStack() as hooks:
        for each in units:
            hooks.enter_context(each.register_forward_hook(note, with_kwargs=True))
        yield


def _call(unit: Recurrent, taken: Tensor, result: Any) -> Call:
    if unit.cell:
        output, cell = result if isinstance(result, tuple) else (result, None)
        final = None
    else:
        output, states = result
        final, cell = states if isinstance(states, tuple) else (states, None)
    return Call(
        unit,
        taken=_edge(taken),
        in_axis=taken.ndim - 1,
        output=_edge(_content(output)),
        final=_edge(final),
        cell=_edge(cell),
    )


def _content(sequence: Tensor | PackedSequence) -> Tensor:
    return sequence.data if isinstance(sequence, PackedSequence) else sequence


def _edge(tensor: Tensor | None) -> Edge | None:
    if tensor is None or tensor.grad_fn is None:
        return None
    return tensor.grad_fn, tensor.output_nr


def _tensors(result: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists, mappings and dataclasses."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from _tensors(value)
    elif dataclasses.is_dataclass(result):
        yield from _tensors(vars(result))
