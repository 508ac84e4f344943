"""Adapters with the names of kohya's scripts, such as lora_unet_mid_block.lora_down.weight."""

import re
from collections.abc import Mapping

from rankscope.checkpoints import Checkpoint
from rankscope.lora.peft import check_alpha

FACTOR = re.compile(r"(?P<module>.+)\.lora_down\.weight")
# Ends of tensors of other methods that are kept under the same kind of name.
OTHER_METHODS = {
    "lora_mid": "a LoCon adapter with three factors",
    "hada_w": "a LoHa adapter",
    "lokr_w": "a LoKr adapter",
    "oft_": "an OFT adapter",
}


def factors(
    source: str, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return the names (up, down) of the factors of each module, and all other names."""
    pairs: dict[str, tuple[str, str]] = {}
    for down in shapes:
        match = FACTOR.fullmatch(down)
        if match is None:
            continue
        module = match["module"]
        up = f"{module}.lora_up.weight"
        if up not in shapes:
            raise ValueError(f"{source}: tensor {down!r} has no partner {up!r}; fetch it again")
        pairs[module] = (up, down)
    used = {name for pair in pairs.values() for name in pair}
    used |= {f"{module}.alpha" for module in pairs}
    others = tuple(name for name in shapes if name not in used)
    for name in others:
        end = name.rpartition(".")[2] if not name.endswith(".weight") else name.split(".")[-2]
        if end == "dora_scale":
            raise ValueError(
                f"{source} is a DoRA adapter, whose magnitudes depend on the base, so it is no "
                "product of two factors; merge it, then extract with rankscope lora BASE MERGED"
            )
        method = next(
            (what for start, what in OTHER_METHODS.items() if end.startswith(start)), None
        )
        if method is not None:
            raise ValueError(f"{source} is {method}, not a product of two factors")
        if end in ("lora_up", "alpha"):
            raise ValueError(f"{source}: tensor {name!r} has no factors beside it; fetch it again")
    return pairs, others


def alpha(checkpoint: Checkpoint, module: str) -> float | None:
    """Read the alpha of a module; None if none is stored, which means its rank."""
    name = f"{module}.alpha"
    if name not in checkpoint.tensors:
        return None
    tensor = checkpoint.read(name)
    if tensor.numel() != 1:
        raise ValueError(
            f"{checkpoint.source}: {name!r} has shape {tuple(tensor.shape)}, not one number"
        )
    return float(tensor.item())


def scales(
    source: str, alphas: Mapping[str, float | None], ranks: Mapping[str, int]
) -> dict[str, float]:
    """Return alpha / r by module."""
    result = {}
    for module, value in alphas.items():
        if value is not None:
            check_alpha(source, module, value)
        result[module] = 1.0 if value is None else value / ranks[module]
    return result


def module_name(module: str, prefix: str) -> str:
    """Return kohya's name of a module: dots become underscores, after a prefix."""
    return f"{prefix}_{module.replace('.', '_')}"


def tensor_names(module: str) -> tuple[str, str, str]:
    """Return the names of up, down and alpha of a module."""
    return f"{module}.lora_up.weight", f"{module}.lora_down.weight", f"{module}.alpha"
