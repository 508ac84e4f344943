"""Pairs of tied matrices, under the names by which these are read."""

from collections.abc import Iterable
from dataclasses import replace

from torch import nn

from rankscope.matrices import Manifest, Reading, view_rule
from rankscope.matrices.wrappers import walk
from rankscope.pairs.pair import Pair, Side


def named_as_read(pairs: Iterable[Pair], model: nn.Module, known: Manifest) -> tuple[Pair, ...]:
    """Return the pairs with each tied matrix named as the manifest reads it, none twice."""
    read_as = _read_as(model, known)
    return tuple(dict.fromkeys(_renamed(pair, read_as) for pair in pairs))


def _read_as(model: nn.Module, model_manifest: Manifest) -> dict[str, tuple[str, bool]]:
    """Return the name under which each tied matrix is read, and whether it is read transposed."""
    ties = model_manifest.ties
    if not ties:
        return {}
    matrices = {
        (reading.parameter, _layout(reading)): reading.name for reading in model_manifest.matrices
    }
    names: dict[str, tuple[str, bool]] = {}
    for name, module in walk(model):
        for reading in view_rule(module, name):
            if (first := ties.get(reading.parameter)) is None:
                continue
            for transposed in (False, True):
                layout = _layout(reading.transposed() if transposed else reading)
                if (first, layout) in matrices:
                    names.setdefault(reading.name, (matrices[first, layout], transposed))
    return names


def _layout(reading: Reading) -> tuple[object, ...]:
    """Return how the stored entries make up the matrix, whatever the axes are called."""
    position = {axis: i for i, (axis, _) in enumerate(reading.axes)}
    return (
        tuple(size for _, size in reading.axes),
        tuple(position[axis] for axis in reading.outputs),
        tuple(position[axis] for axis in reading.inputs),
        tuple((position[axis], value) for axis, value in reading.index),
        reading.span,
    )


def _renamed(pair: Pair, read_as: dict[str, tuple[str, bool]]) -> Pair:
    earlier, turned_earlier = read_as.get(pair.earlier, (pair.earlier, False))
    later, turned_later = read_as.get(pair.later, (pair.later, False))
    return replace(
        pair,
        earlier=earlier,
        later=later,
        earlier_side=_side(pair.earlier_side, turned=turned_earlier),
        later_side=_side(pair.later_side, turned=turned_later),
    )


def _side(side: Side, *, turned: bool) -> Side:
    if not turned:
        return side
    return "in" if side == "out" else "out"
