"""Manifest of a model, from the rules for each of its modules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor, nn

from rankscope.matrices.attention import Attention
from rankscope.matrices.coverage import Coverage, Covered, described, tied
from rankscope.matrices.effective_model import EffectiveModel, effective_model, stored_tensors
from rankscope.matrices.lora import lora_products
from rankscope.matrices.manifest import Manifest
from rankscope.matrices.quantization import why_unreadable
from rankscope.matrices.reading import Reading, dotted
from rankscope.matrices.recognition import attentions_in, why_unknown
from rankscope.matrices.rules import flattened_reading, is_stacked_bias, is_vector, view_rule
from rankscope.matrices.wrappers import children, walk


def manifest(model: nn.Module, *, raw: bool = False) -> Manifest:
    """Return how every matrix and product of the model is read. Works on the meta device.

    Matrices are read from effective weights, which the forward pass multiplies by; if `raw`, from
    the stored tensors.
    """
    source = EffectiveModel(model, (), {}) if raw else effective_model(model)
    modules = tuple(walk(source.model))
    first_names: dict[int, str] = {}
    readings: list[Reading] = []
    lines: list[Covered] = []
    for name, module in modules:
        module_readings, module_lines = _module_readings(name, module, first_names)
        readings += module_readings
        lines += module_lines
    shapes = {line.tensor: line.shape for line in lines if line.matrices}
    ties = {line.tensor for line in lines if line.tied_to in shapes}
    attentions, notes = _attentions(modules, readable=shapes.keys() | ties)
    stacks = _stacks(attentions, readings)
    lines = [_stacked(line, stacks) for line in lines]
    stored = stored_tensors(model)
    lines = [_noted(line, notes) for line in _with_parts(lines, source, stored)]
    factors = {name: tuple(t.shape) for name, t in stored.items() if why_unreadable(t) is None}
    lora, scaled = lora_products(factors, dict(walk(model)))
    return checked(
        Manifest(
            matrices=tuple(stacks.get(reading.parameter, reading) for reading in readings),
            attentions=attentions,
            lora=lora,
            coverage=Coverage(tuple(lines)),
            effective=(*source.weights, *scaled),
        )
    )


def _with_parts(
    lines: Iterable[Covered], source: EffectiveModel, stored: Mapping[str, Tensor]
) -> Iterator[Covered]:
    """Yield each line, then the parts of its effective weight, then tensors that no weight uses."""
    weights = {weight.parameter: weight for weight in source.weights}
    listed: set[str] = set()
    for line in lines:
        weight = weights.get(line.tensor)
        listed.add(line.tensor)
        effective = weight is not None and line.matrices
        note = source.notes.get(line.tensor)
        how = f"{line.how}, {weight.described}" if weight and effective else line.how
        yield replace(line, how=f"{how}; {note}" if note else how)
        for part in weight.parts if weight is not None else ():
            if part not in listed and stored[part].ndim >= 2:
                listed.add(part)
                yield Covered(part, tuple(stored[part].shape), "read", f"in {line.tensor}")
    for name, tensor in stored.items():
        if tensor.ndim >= 2 and name not in listed:
            reason = why_unreadable(tensor) or "the forward pass does not use it now"
            yield Covered(name, tuple(tensor.shape), "not read", reason)


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Return the attention modules of a model by name."""
    return {attention.name: attention for attention in manifest(model).attentions}


def _module_readings(
    name: str, module: nn.Module, first_names: dict[int, str]
) -> tuple[list[Reading], list[Covered]]:
    """Return readings and coverage of the tensors a module owns; add new ones to `first_names`."""
    if "_flat_param" in module._parameters:
        raise ValueError(
            f"module {name!r} keeps its weights as one flat shard; use fully_shard (FSDP2), or "
            "use_orig_params=True and read inside FullyShardedDataParallel.summon_full_params"
        )
    ruled = view_rule(module, name)
    shapes = {
        dotted(name, key): tuple(tensor.shape)
        for key, tensor in module._parameters.items()
        if tensor is not None
    }
    readings: list[Reading] = []
    lines: list[Covered] = []
    for key, tensor in module._parameters.items():
        if tensor is None or tensor.ndim < 2:
            continue
        parameter, shape = dotted(name, key), tuple(tensor.shape)
        first = first_names.setdefault(id(tensor), parameter)
        if first != parameter:
            lines.append(tied(parameter, shape, first))
        elif reason := why_unreadable(tensor):
            lines.append(Covered(parameter, shape, "not read", reason))
        else:
            matrices = [reading for reading in ruled if reading.parameter == parameter]
            matrices = matrices or [flattened_reading(parameter, shape)]
            readings += matrices
            lines.append(covered(parameter, shapes, matrices, type(module).__name__))
    _check_owned(ruled, name, module)
    for key, buffer in module._buffers.items():
        if buffer is not None and buffer.ndim >= 2:
            how = "a buffer, not trained"
            lines.append(Covered(dotted(name, key), tuple(buffer.shape), "not read", how))
    return readings, lines


def _check_owned(ruled: Iterable[Reading], name: str, module: nn.Module) -> None:
    owned = {dotted(name, key) for key in module._parameters}
    for reading in ruled:
        if reading.parameter not in owned:
            raise ValueError(
                f"matrix {reading.name!r}: the rule for {type(module).__name__} reads "
                f"{reading.parameter!r}, expected a parameter of its own: {sorted(owned)}"
            )


def covered(
    parameter: str, shapes: Mapping[str, tuple[int, ...]], readings: list[Reading], layer: str
) -> Covered:
    """Return the line of a tensor that is read; `layer` names the rule.

    shapes: those of the tensor and its neighbours by name.
    """
    shape = shapes[parameter]
    wholes = tuple(reading.name for reading in readings if reading.part_of is None)
    many = f"{len(wholes)} matrices " if len(wholes) > 1 else ""
    parts = len(readings) - len(wholes)
    cut = f", in {parts} parts too" if parts else ""
    if is_vector(shape):
        how = f"{layer}: a vector, measured only if include= names it"
        return Covered(parameter, shape, "vector", how, wholes)
    if is_stacked_bias(parameter, shape, shapes):
        how = f"{layer}: one bias per matrix of a stack, measured only if include= names it"
        return Covered(parameter, shape, "vector", how, wholes)
    if readings[0].kind == "flattened":
        how = f"no rule for {layer}: first axis x all others"
        return Covered(parameter, shape, "flattened", how, wholes)
    how = f"{layer}: {many}{described(readings[0])}{cut}"
    return Covered(parameter, shape, "read", how, wholes)


def _attentions(
    modules: tuple[tuple[str, nn.Module], ...], *, readable: set[str]
) -> tuple[tuple[Attention, ...], dict[str, str]]:
    """Return the attention modules with readable tensors, and notes for coverage by tensor.

    Notes are on the tensors of these modules, and of modules that look like attention.
    """
    recognised: list[Attention] = []
    notes: dict[str, str] = {}
    visited: set[int] = set()
    owner: str | None = None
    for name, module in modules:
        if id(module) in visited or (owner is not None and _is_inside(name, owner)):
            continue
        visited.add(id(module))
        module_attentions = attentions_in(module, name)
        for attention in module_attentions:
            parameters = [reading.parameter for reading in attention.readings]
            # Quantized weights cannot be multiplied.
            if readable.issuperset(parameters):
                recognised.append(attention)
                owner = name
                notes |= dict.fromkeys(parameters, _heads(attention))
        if not module_attentions and (reason := why_unknown(module, name)):
            notes |= dict.fromkeys(_near(module, name), reason)
    return tuple(recognised), notes


def _near(module: nn.Module, name: str) -> Iterator[str]:
    """Yield the names of the tensors of a module, of its layers, and of layers they wrap."""
    yield from (dotted(name, key) for key in module._parameters)
    for key, layer in children(module).items():
        yield dotted(name, key, "weight")
        yield from (dotted(name, key, inner, "weight") for inner in children(layer))


def _stacks(attentions: Iterable[Attention], readings: Iterable[Reading]) -> dict[str, Reading]:
    """Return the stacks of heads among the tensors that no other rule reads, by parameter."""
    unruled = {reading.parameter for reading in readings if reading.kind == "flattened"}
    return {
        reading.parameter: reading
        for attention in attentions
        for reading in attention.readings
        if reading.parameter in unruled and reading.part_of is None
    }


def _stacked(line: Covered, stacks: dict[str, Reading]) -> Covered:
    """Return the line of a tensor that turned out to be a stack of heads."""
    if line.tensor not in stacks:
        return line
    shapes = {line.tensor: line.shape}
    return covered(line.tensor, shapes, [stacks[line.tensor]], "stack of heads")


def _is_inside(name: str, owner: str) -> bool:
    return not owner or name.startswith(f"{owner}.")


def _heads(attention: Attention) -> str:
    shared = attention.kv_heads != attention.heads
    keys = f" meeting {_count(attention.kv_heads, 'key head')}" if shared else ""
    missing = "" if attention.output else ", no V-O products: no output projection found"
    note = f", {attention.note}" if attention.note else ""
    heads = _count(attention.heads, "head")
    return f"{heads}{keys} of width {attention.head_dim}{missing}{note}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _noted(line: Covered, notes: dict[str, str]) -> Covered:
    """Add the note on its attention module to a line."""
    if line.tensor not in notes or not line.matrices:
        return line
    return replace(line, how=f"{line.how}; {notes[line.tensor]}")


def checked(candidate: Manifest) -> Manifest:
    """Return the manifest if no two readings share a name."""
    tensors: dict[str, str] = {}
    for reading in candidate.readings:
        if reading.name in tensors:
            raise ValueError(
                f"matrix {reading.name!r} is read from both {tensors[reading.name]!r} and "
                f"{reading.parameter!r}; give one another name with view_rule.register"
            )
        tensors[reading.name] = reading.parameter
    return candidate
