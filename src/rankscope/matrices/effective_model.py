"""A model as its forward pass multiplies, built beside the model and without touching it.

Modules that compute their weights are replaced by stand-ins that own them, so that every rule reads
them like plain layers. What needs no stand-in stays the model's own object.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankscope.matrices.adapter_maps import map_steps
from rankscope.matrices.adapters import (
    BASE,
    adapted_key,
    adapter_steps,
    has_bias,
    is_adapter,
    own_updates,
    trained_copy,
)
from rankscope.matrices.effective import Effective, Step
from rankscope.matrices.parametrization import is_weight_hook, parametrized, plain_class
from rankscope.matrices.quantization import packed_class, packed_tensors, quantized
from rankscope.matrices.reading import dotted
from rankscope.matrices.weights import Weights
from rankscope.matrices.wrappers import named_tensors, unwrap, walk

PARAMETRIZATIONS = "parametrizations"
Shapes = dict[Effective, tuple[int, ...]]


class EffectiveModel(NamedTuple):
    """Result of `effective_model`.

    model: the model with stand-ins, whose effective weights are `weights`.
    notes: why a weight is read from its raw parts, by the name of the part.
    """

    model: nn.Module
    weights: tuple[Effective, ...]
    notes: dict[str, str]


def effective_model(model: nn.Module, *, shapes: Shapes | None = None) -> EffectiveModel:
    """Return the model with its effective weights as tensors on the meta device.

    shapes: those that had to be computed, from an earlier call; new ones are added.
    """

    def shaped(weight: Effective) -> nn.Parameter:
        return nn.Parameter(torch.empty(weight.shape, device="meta"), requires_grad=False)

    return _build(model, shaped, {} if shapes is None else shapes)


def plain_model(model: nn.Module) -> EffectiveModel:
    """Return the model with its effective weights as plain parameters; it shares all others."""
    if packed := list(packed_tensors(model)):
        raise ValueError(
            f"tensor {packed[0]!r} is packed by torch.ao and cannot be replaced; use the model "
            "from before it was quantized"
        )
    stored = weights_of(model)

    def computed(weight: Effective) -> nn.Parameter:
        dtype = stored.stored[weight.base].dtype
        usual = dtype.is_floating_point and dtype.itemsize > 1
        return nn.Parameter(stored.compute(weight).to(dtype if usual else torch.float32))

    return _build(model, computed, {})


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters, buffers and packed weights by name."""
    return {**named_tensors(model), **packed_tensors(model)}


def weights_of(model: nn.Module, effective: Iterable[Effective] = ()) -> Weights:
    """Return the tensors of a model, effective ones included."""
    by_name = {weight.parameter: weight for weight in effective}
    return Weights(stored_tensors(model), by_name, dict(walk(model)))


def _build(
    model: nn.Module, parameter: Callable[[Effective], nn.Parameter], shapes: Shapes
) -> EffectiveModel:
    builder = _Builder(weights_of(model), parameter, shapes)
    built = builder.build(model, "", "")
    return EffectiveModel(built, tuple(builder.effective.values()), builder.notes)


class _Builder:
    """Builds stand-ins from the leaves up, and notes the effective weights on the way."""

    def __init__(
        self,
        stored: Weights,
        parameter: Callable[[Effective], nn.Parameter],
        shapes: Shapes,
    ) -> None:
        self.effective: dict[str, Effective] = {}
        self.notes: dict[str, str] = {}
        self._stored = stored
        self._parameter = parameter
        self._shapes = shapes
        self._built: dict[int, nn.Module] = {}
        self._parameters: dict[tuple[int, str], nn.Parameter] = {}

    def build(self, module: nn.Module, name: str, stored: str) -> nn.Module:
        """Return the module or its stand-in; `stored` is its name in the model.

        A shared module has one stand-in, and its weights are noted under each name.
        """
        module = unwrap(module)
        built = self._rebuilt(module, name, stored)
        return self._built.setdefault(id(module), built)

    def _rebuilt(self, module: nn.Module, name: str, stored: str) -> nn.Module:
        if is_adapter(module):
            steps = adapter_steps(module)
            if isinstance(steps, str):
                steps = self._map_steps(module, name, stored) or steps
            if not isinstance(steps, str):
                return self._adapted(module, name, stored, steps)
            self._note_unknown_adapter(module, stored, steps)
        if (path := trained_copy(module)) is not None:
            return self._built_at(module, path, name, stored)
        parts = {
            key: self.build(child, dotted(name, key), dotted(stored, key))
            for key, child in module._modules.items()
            if child is not None and key != PARAMETRIZATIONS
        }
        if name != stored:
            self._rename(module, name, stored)
        weights = self._own_weights(module, name, stored)
        if weights or any(part is not module._modules[key] for key, part in parts.items()):
            return self._stand_in(module, parts, weights)
        return module

    def _built_at(self, module: nn.Module, path: str, name: str, stored: str) -> nn.Module:
        """Build a descendant under the name of `module`."""
        return self.build(module.get_submodule(path), name, dotted(stored, path))

    def _map_steps(
        self, module: nn.Module, name: str, stored: str
    ) -> tuple[Step, ...] | str | None:
        """Return what adapters without a formula do, or why not; None if they are unknown."""
        steps = map_steps(module)
        if steps is None:
            return None
        weight = Effective(dotted(name, "weight"), (), dotted(BASE, "weight"), steps)
        try:
            self._shape(weight.under("", stored))
        except Exception as failure:  # an adapter may do anything
            return f"it cannot be computed: {failure}".splitlines()[0]
        return steps

    def _adapted(
        self, module: nn.Module, name: str, stored: str, steps: tuple[Step, ...]
    ) -> nn.Module:
        """Build the base layer under the name of the layer with adapters, its weight adapted."""
        base = self._built_at(module, BASE, name, stored)
        key = adapted_key(module, base)
        tensor = base._parameters.get(key)
        if tensor is None or not steps:
            return base
        before = self.effective[dotted(name, key)]
        change = Effective(key, (), "", steps).under(name, stored)
        steps = tuple(_with_base(step, dotted(stored, BASE), before.base) for step in change.steps)
        weight = replace(before, steps=before.steps + steps)
        if has_bias(module):
            self.notes[weight.parameter] = "its adapter has a bias, which is no part of the matrix"
        if isinstance(base, nn.MultiheadAttention):
            reason = "PEFT merges this adapter in each forward pass, in some versions twice"
            self.notes[dotted(name, "out_proj.weight")] = reason
        adapted = Effective(key, weight.shape, key)
        parts = {part: child for part, child in base._modules.items() if child is not None}
        return self._stand_in(base, parts, {adapted: self._noted(module, key, weight)})

    def _own_weights(
        self, module: nn.Module, name: str, stored: str
    ) -> dict[Effective, nn.Parameter]:
        """Return the effective weights that a module owns, with names relative to it."""
        weights: dict[Effective, nn.Parameter] = {}
        for relative in (*parametrized(module), *quantized(module), *own_updates(module)):
            weight = relative.under(name, stored)
            try:
                weight = replace(weight, shape=self._shape(weight))
            except Exception as failure:  # a user's parametrization may raise anything
                reason = f"{weight.described} cannot be computed: {failure}".splitlines()[0]
                self.notes |= dict.fromkeys(weight.parts, reason)
                continue
            weights[relative] = self._noted(module, relative.parameter, weight)
        return weights

    def _shape(self, weight: Effective) -> tuple[int, ...]:
        """Shape of a weight; what has no formula or may refuse to be read is tried once."""
        tensors = [self._stored[part] for part in weight.parts]
        # Shards are gathered by all ranks together, and only some may be here.
        if not any(hasattr(tensor, "full_tensor") for tensor in tensors) and any(
            step.module or step.formula == "dequantized" for step in weight.steps
        ):
            if weight not in self._shapes:
                self._shapes[weight] = tuple(self._stored.compute(weight).shape)
            return self._shapes[weight]
        return tuple(tensors[0].shape)

    def _noted(self, module: nn.Module, key: str, weight: Effective) -> nn.Parameter:
        """Note an effective weight and return the parameter that stands for it."""
        self.effective[weight.parameter] = weight
        if (id(module), key) not in self._parameters:
            self._parameters[id(module), key] = self._parameter(weight)
        return self._parameters[id(module), key]

    def _rename(self, module: nn.Module, name: str, stored: str) -> None:
        """Note the tensors of a module that stands at another place than it is stored."""
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                alias = Effective(dotted(name, key), tuple(tensor.shape), dotted(stored, key))
                self.effective[alias.parameter] = alias

    def _note_unknown_adapter(self, module: nn.Module, stored: str, reason: str) -> None:
        base = module.get_submodule(BASE)
        names = (dotted(stored, BASE, key) for key in base._parameters)
        self.notes |= dict.fromkeys(names, f"without its adapter: {reason}")

    def _stand_in(
        self,
        module: nn.Module,
        parts: dict[str, nn.Module],
        weights: dict[Effective, nn.Parameter],
    ) -> nn.Module:
        """Return a shallow copy of a module that owns `weights` instead of their parts."""
        copy: nn.Module = object.__new__(packed_class(module) or plain_class(module))
        copy.__dict__.update(module.__dict__)
        own = {weight.parameter: parameter for weight, parameter in weights.items()}
        used = {part for weight in weights for part in weight.parts} | own.keys()
        for key in own:
            copy.__dict__.pop(key, None)  # the weight that a hook computed last
        stored = {key: p for key, p in module._parameters.items() if key not in used}
        copy._parameters = {**stored, **own}
        copy._buffers = {k: b for k, b in module._buffers.items() if k not in used}
        copy._modules = {**parts, **_remaining_parametrizations(module, own.keys())}
        hooks = module._forward_pre_hooks
        copy._forward_pre_hooks = type(hooks)(
            (number, hook) for number, hook in hooks.items() if not is_weight_hook(hook)
        )
        return copy


def _remaining_parametrizations(
    module: nn.Module, handled: Collection[str]
) -> dict[str, nn.Module]:
    """Return the child that holds parametrizations, with those that cannot be computed."""
    child = module._modules.get(PARAMETRIZATIONS)
    remaining = (
        {} if child is None else {k: c for k, c in child._modules.items() if k not in handled}
    )
    return {PARAMETRIZATIONS: nn.ModuleDict(remaining)} if remaining else {}  # type: ignore[arg-type]


def _with_base(step: Step, placeholder: str, base: str) -> Step:
    """Return a step with the name of the base weight, which adapters do not know."""
    return replace(step, parts=tuple(base if p == placeholder else p for p in step.parts))
