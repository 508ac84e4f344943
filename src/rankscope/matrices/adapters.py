"""Adapters of PEFT and loralib: which of them are active, and what they do to a layer's weight.

Layers are recognised by the names of their attributes, so neither library is needed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from rankscope.matrices.effective import Effective, Step

# Names under which PEFT keeps an adapted layer, a layer that is trained as a whole, and a table of
# which a few tokens are trained.
BASE, SAVED, TOKENS = "base_layer", "modules_to_save", "token_adapter"


def is_adapter(module: nn.Module) -> bool:
    """Tell whether a module is a layer with adapters, which PEFT keeps in `base_layer`."""
    return BASE in module._modules and getattr(module, "active_adapters", None) is not None


def adapted_key(module: nn.Module, base: nn.Module) -> str:
    """Return the name of the parameter of the base layer that the adapters change."""
    name = getattr(module, "parameter_name", None)
    packed = isinstance(base, nn.MultiheadAttention)
    return name if isinstance(name, str) else "in_proj_weight" if packed else "weight"


def adapter_steps(module: nn.Module) -> tuple[Step, ...] | str:
    """Return what the active adapters do, parts relative to the module; or why that is unknown.

    A merged adapter does nothing more, a disabled one nothing at all.
    """
    if getattr(module, "disable_adapters", False) or getattr(module, "merged_adapters", ()):
        return ()
    if not {"lora_A", "lora_embedding_A"} & module._modules.keys():
        return f"the adapter of a {type(module).__name__} is not known"
    steps: list[Step] = []
    for adapter in _active(module):
        variant = type(_entry(module, "lora_variant", adapter)).__name__
        if not (variant == "NoneType" or variant.startswith("Dora")):
            return f"the adapter {variant} is not known"
        step = _lora_step(module, adapter)
        if step is not None:
            steps.append(step)
    return tuple(steps)


def has_bias(module: nn.Module) -> bool:
    """Tell whether an active adapter adds a bias of its own."""
    ups = module._modules.get("lora_B")
    layers = [] if ups is None else [ups._modules.get(adapter) for adapter in _active(module)]
    return any(layer is not None and layer._parameters.get("bias") is not None for layer in layers)


def _active(module: nn.Module) -> tuple[str, ...]:
    names: Any = getattr(module, "active_adapters", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _lora_step(module: nn.Module, adapter: str) -> Step | None:
    """Return the update of one adapter; None if it does not adapt this layer."""
    tables = _part(module, "lora_embedding_A", adapter) is not None
    prefix = "lora_embedding_" if tables else "lora_"
    A, B = _part(module, f"{prefix}A", adapter), _part(module, f"{prefix}B", adapter)
    if A is None or B is None:
        return None
    scale = float(_entry(module, "scaling", adapter) or 0.0)
    transposed = float(tables or bool(getattr(module, "fan_in_fan_out", False)))
    E, ranks = _part(module, "lora_E", adapter), _part(module, "ranknum", adapter)
    if E is not None and ranks is not None:
        return Step("AdaLoRA", (A, B, E, ranks), (scale, transposed))
    magnitude = _part(module, "lora_magnitude_vector", adapter)
    if magnitude is not None:
        # `base` is completed by the caller, who knows where the base weight is stored.
        return Step("DoRA", (BASE, A, B, magnitude), (scale, transposed))
    if getattr(module, "num_experts", 1) > 1:
        swapped = bool(getattr(module, "_did_swap_in_out_features", False))
        return Step("LoRA of experts", (A, B), (scale, float(not swapped)))
    return Step("LoRA", (A, B), (scale, transposed))


def _part(module: nn.Module, holder_name: str, adapter: str) -> str | None:
    """Return the relative name of an adapter's tensor in a ModuleDict or ParameterDict."""
    holder = module._modules.get(holder_name)
    if holder is None:
        return None
    if adapter in holder._modules:
        return f"{holder_name}.{adapter}.weight"
    return f"{holder_name}.{adapter}" if adapter in holder._parameters else None


def _entry(module: nn.Module, name: str, adapter: str) -> Any:
    entries = getattr(module, name, None)
    return entries.get(adapter) if isinstance(entries, Mapping) else None


def trained_copy(module: nn.Module) -> str | None:
    """Return which child of a PEFT wrapper runs: a trained copy of a module, or the original.

    A table with a few trained tokens has its adapter in a child. None if the module is no wrapper.
    """
    tokens = module._modules.get(TOKENS)
    if tokens is not None and is_adapter(tokens):
        return TOKENS
    if not {SAVED, "original_module"} <= module._modules.keys():
        return None
    copies = module._modules[SAVED]
    if copies is None or getattr(module, "disable_adapters", False):
        return "original_module"
    active = (adapter for adapter in _active(module) if adapter in copies._modules)
    return next((f"{SAVED}.{adapter}" for adapter in active), "original_module")


def own_updates(module: nn.Module) -> Iterator[Effective]:
    """Yield the weight of a loralib layer, which holds `weight`, `lora_A` and `lora_B` itself."""
    own = module._parameters
    if not (own.keys() >= {"weight", "lora_A", "lora_B"} and isinstance(module, nn.Linear)):
        return
    scale = getattr(module, "scaling", None)
    if isinstance(scale, int | float) and not getattr(module, "merged", False):
        transposed = float(bool(getattr(module, "fan_in_fan_out", False)))
        step = Step("LoRA", ("lora_A", "lora_B"), (float(scale), transposed))
        yield Effective("weight", (), "weight", (step,))
