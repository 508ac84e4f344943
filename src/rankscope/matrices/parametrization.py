"""Effective weights: torch's parametrizations, and its hooks of older versions.

Reading `module.weight` of such a module computes it, and under spectral norm changes buffers. The
functions here read the stored parts only.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from rankscope.matrices.effective import Effective, Step

# Fields of a module that may hold its hooks.
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def parametrized(module: nn.Module) -> Iterator[Effective]:
    """Yield the weights that a module computes; names are relative to it, shapes not yet known."""
    registered = module._modules.get("parametrizations")
    for key in () if registered is None else registered._modules:
        yield _registered(module, key)
    hooked = {weight.parameter: weight for weight in map(_hooked, _hooks(module)) if weight}
    for weight in tuple(hooked.values()):
        if inner := hooked.pop(weight.base, None):  # a pruned direction of weight norm
            steps = inner.steps + weight.steps
            hooked[weight.parameter] = replace(weight, base=inner.base, steps=steps)
    yield from hooked.values()


def _hooks(module: nn.Module) -> tuple[object, ...]:
    return tuple(module._forward_pre_hooks.values())


def _registered(module: nn.Module, key: str) -> Effective:
    """Read a weight registered with `torch.nn.utils.parametrize`."""
    transforms: Any = module._modules["parametrizations"]._modules[key]  # type: ignore[union-attr]
    path = f"parametrizations.{key}"
    originals = [f"{path}.{name}" for name in transforms._parameters if name.startswith("original")]
    originals += [f"{path}.{name}" for name in transforms._buffers if name.startswith("original")]
    base, rest = originals[0], tuple(originals[1:])
    steps: list[Step] = []
    for number, transform in transforms._modules.items():
        place = f"{path}.{number}"
        kind = type(transform).__name__
        known = type(transform).__module__ == "torch.nn.utils.parametrizations"
        if known and kind == "_WeightNorm":
            base, rest = rest[0], (base,)  # the magnitude is stored before the direction
            steps.append(Step("weight norm", rest, (float(transform.dim),)))
        elif known and kind == "_SpectralNorm" and "_u" in transform._buffers:
            vectors = (f"{place}._u", f"{place}._v")
            steps.append(Step("spectral norm", vectors, (float(transform.dim),)))
        else:
            own = tuple(f"{place}.{name}" for name, _ in named_parts(transform))
            steps.append(Step(f"parametrization {kind}", rest + own, module=place))
        rest = ()
    return Effective(key, (), base, tuple(steps))


def _hooked(hook: object) -> Effective | None:
    """Read a weight that a hook computes before each forward pass."""
    if isinstance(hook, WeightNorm):
        step = Step("weight norm", (f"{hook.name}_g",), (float(hook.dim),))
        return Effective(hook.name, (), f"{hook.name}_v", (step,))
    if isinstance(hook, SpectralNorm):
        step = Step("spectral norm", (f"{hook.name}_u", f"{hook.name}_v"), (float(hook.dim),))
        return Effective(hook.name, (), f"{hook.name}_orig", (step,))
    if isinstance(hook, BasePruningMethod):
        name = hook._tensor_name
        return Effective(name, (), f"{name}_orig", (Step("mask", (f"{name}_mask",)),))
    return None


def is_weight_hook(hook: object) -> bool:
    """Tell whether a hook computes a weight."""
    return _hooked(hook) is not None


def plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module without the properties that parametrizations add."""
    kind = type(module)
    return kind.__bases__[0] if parametrize.is_parametrized(module) else kind


def named_parts(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of a module and its children."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def without_hooks(module: nn.Module) -> dict[int, Any]:
    """Return a memo with which deepcopy leaves out hooks, and objects that only hooks know."""
    fields = (getattr(part, field) for part in module.modules() for field in HOOKS)
    return {id(hooks): OrderedDict() for hooks in fields}


def evaluated(module: nn.Module, name: str, W: Tensor, parts: Mapping[str, Tensor]) -> Tensor:
    """Return the weight that a parametrization makes of W and its own `parts`.

    A copy in eval mode, with cloned tensors and without hooks, does the work. The state of the
    random numbers is restored.
    """
    memo = without_hooks(module)
    own: set[str] = set()
    for key, stored in named_parts(module):
        own.add(f"{name}.{key}")
        memo[id(stored)] = parts[f"{name}.{key}"].clone()
    others = [part for part_name, part in parts.items() if part_name not in own]
    transform = copy.deepcopy(module, memo).eval()
    devices = [W.device.index] if W.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        result: Tensor = transform.forward(W.clone(), *(part.clone() for part in others))
    return result.detach()
