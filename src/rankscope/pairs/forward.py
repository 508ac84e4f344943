"""Run one forward pass and note what the graph does not tell: recurrent calls, gathered shards."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rankscope.matrices.wrappers import unwrap, walk
from rankscope.pairs.graph import Edge
from rankscope.pairs.neutral import unchanged
from rankscope.pairs.recurrent import Recurrent, recurrent
from rankscope.pairs.sharded import gathering


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


class Trace(NamedTuple):
    """One forward pass.

    outputs: the tensors that it gave.
    calls: the calls of recurrent modules on the way.
    gathered: the whole parameters that stood in for sharded ones, each with the sharded one.
    """

    outputs: list[Tensor]
    calls: list[Call]
    gathered: list[tuple[Tensor, Tensor]]


def trace(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
    """Run the unwrapped model once, eagerly and in eval mode, recorded by autograd."""
    module = unwrap(model)
    calls: list[Call] = []
    gathered: list[tuple[Tensor, Tensor]] = []
    with gathering(module, gathered), unchanged(module), eager(), _recorded(module, calls):
        try:
            result = module(*inputs, **kwargs)
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"the forward pass of {type(module).__name__} failed on the example inputs "
                f"({type(error).__name__}: {first_line}); pass inputs as in training, "
                "named ones as discover_pairs(model, **batch)"
            ) from error
    outputs = [tensor for tensor in _tensors(result) if tensor.grad_fn is not None]
    if not outputs:
        raise ValueError(
            f"the forward pass of {type(module).__name__} returned no tensor that depends on its "
            "parameters; use a model that returns its outputs and computes them with gradients on"
        )
    return Trace(outputs, calls, gathered)


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
