"""Run one forward pass that leaves the model as it was, and note the calls of recurrent modules."""

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
    """One call of a recurrent module: its input and its outputs, as edges of the graph.

    `final` holds the last states of every layer and direction; single-step cells have none.
    """

    unit: Recurrent
    input: Edge | None
    in_axis: int
    output: Edge | None
    final: Edge | None
    cell: Edge | None


def trace(
    model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Tensor], list[Call]]:
    """Run the unwrapped model once, eagerly and in eval mode, recorded by autograd.

    Returns the tensors that it gave, and the calls of recurrent modules on the way.
    """
    module = unwrap(model)
    calls: list[Call] = []
    with unchanged(module), eager(), _recorded(module, calls):
        try:
            result = module(*inputs, **kwargs)
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"the forward pass of {type(module).__name__} failed on the example inputs "
                f"({type(error).__name__}: {first_line}); pass inputs as in training"
            ) from error
    outputs = [tensor for tensor in _tensors(result) if tensor.grad_fn is not None]
    if not outputs:
        raise ValueError(
            f"the forward pass of {type(module).__name__} returned no tensor that depends on its "
            "parameters; use a model that returns its outputs and computes them with gradients on"
        )
    return outputs, calls


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Record all parameters in eval mode; then restore modes, gradients, buffers, random state."""
    modes = [(part, part.training) for part in module.modules()]
    parameters = [(param, param.requires_grad, param.grad) for param in module.parameters()]
    buffers = [(part, dict(part._buffers)) for part in module.modules()]
    contents = [(buf, buf.detach().clone()) for buf in module.buffers() if not buf.is_meta]
    tensors = (*module.parameters(), *module.buffers())
    devices = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
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
        for part, mode in modes:
            part.training = mode
        for parameter, requires_grad, gradient in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for part, named_buffers in buffers:
            part._buffers.clear()
            part._buffers.update(named_buffers)
        for buffer, content in contents:
            _restore(buffer, content)


def _restore(buffer: Tensor, content: Tensor) -> None:
    # Write only if bits differ: an expanded tensor cannot be written to.
    if not torch.equal(_bits(buffer), _bits(content)):
        with torch.no_grad():
            buffer.copy_(content)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@contextmanager
def eager() -> Iterator[None]:
    """Run compiled parts as written, since a compiled graph is one node to autograd."""
    # Importing the compiler only to switch it off would take seconds.
    compiler_used = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if compiler_used else ExitStack():
        yield


@contextmanager
def _recorded(module: nn.Module, calls: list[Call]) -> Iterator[None]:
    """Append every call of a recurrent module to `calls`."""
    units: dict[nn.Module, Recurrent] = {}
    for name, part in walk(module):
        unit = recurrent(part, name)
        if unit is not None:
            units.setdefault(part, unit)

    def note(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        sequence = _content(args[0] if args else kwargs["input"])
        calls.append(_call(units[part], sequence, result))

    with ExitStack() as hooks:
        for part in units:
            hooks.enter_context(part.register_forward_hook(note, with_kwargs=True))
        yield


def _call(unit: Recurrent, sequence: Tensor, result: Any) -> Call:
    if unit.cell:
        output, cell = result if isinstance(result, tuple) else (result, None)
        final = None
    else:
        output, states = result
        final, cell = states if isinstance(states, tuple) else (states, None)
    return Call(
        unit,
        input=_edge(sequence),
        in_axis=sequence.ndim - 1,
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
    """Yield the tensors in nested tuples, lists, mappings and dataclasses."""
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
