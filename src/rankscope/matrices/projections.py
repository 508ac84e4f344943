"""Projections of an attention module: the layer below a path, read as one out x in matrix."""

from torch import nn
from torch.nn.modules import activation

from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.rules import view_rule
from rankscope.matrices.wrappers import children


def projection(module: nn.Module, name: str, path: str) -> Reading:
    """Return the one matrix, with rows "out" and columns "in", of a layer below `module`."""
    for step in path.split("."):
        module = children(module)[step]
    layer_name = dotted(name, path)
    while inner := _inner(module, layer_name):
        module, layer_name = children(module)[inner], dotted(layer_name, inner)
    readings = view_rule(module, layer_name)
    if len(readings) == 1 and readings[0].outputs == ("out",) and readings[0].inputs[:1] == ("in",):
        (reading,) = readings
        if dict(reading.axes)["in"] == reading.n:  # a convolution must have 1 x 1 taps
            return reading
    layer = type(module).__name__
    raise ValueError(
        f"attention {name!r}: {layer_name!r} is a {layer}, not read as one out x in matrix"
    )


def _inner(module: nn.Module, layer_name: str) -> str | None:
    """Return the name of the layer that a wrapper holds, such as the Linear of (Linear, Dropout).

    PEFT keeps the layer it adapts in `base_layer`.
    """
    layers = {key: layer for key, layer in children(module).items() if key != "parametrizations"}
    if not layers or "base_layer" in layers:
        return "base_layer" if layers else None
    if any(type(layer).__module__ == activation.__name__ for layer in layers.values()):
        raise ValueError(f"{layer_name!r} has an activation, so its product is not linear")
    weighted = [key for key, layer in layers.items() if next(layer.parameters(), None) is not None]
    if len(weighted) == 1:
        return weighted[0]
    return "0" if "0" in layers else None


def output_projection(module: nn.Module, name: str, path: str | None) -> Reading | None:
    """Return the output projection, None if there is none."""
    return None if path is None else projection(module, name, path)
