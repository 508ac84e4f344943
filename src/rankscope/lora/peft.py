"""PEFT's adapters: names of tensors, and adapter_config.json in both directions."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rankscope.lora.patterns import Patterns, anchored
from rankscope.matrices.lora import FACTOR_A

PART = re.compile(r"(^|\.)lora_")
PREFIX = "base_model.model."
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Starts of training that change the base too, so that B A is not the change.
SHIFTED = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Options of variants whose change is not scale * B A of the factors as they are stored.
VARIANTS = ("use_qalora", "use_bdlora", "kasa_config", "monteclora_config")
# Options with which scale * B A is not all that the adapter does to the base, or not everywhere.
BEYOND_WEIGHTS = {
    "layer_replication": "repeats layers of the base under other numbers",
    "alora_invocation_tokens": "acts only after its invocation tokens",
    "trainable_token_indices": "replaces single rows of a table of tokens",
}


def factors(
    source: str, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return the names (up, down) of the factors of each module, and all other names."""
    pairs: dict[str, tuple[str, str]] = {}
    for down in shapes:
        match = FACTOR_A.fullmatch(down)
        if match is None:
            continue
        up = down.replace("lora_A", "lora_B").replace("lora_embedding_A", "lora_embedding_B")
        module = (match["layer"] or "").removeprefix(PREFIX)
        if up not in shapes:
            raise ValueError(f"{source}: tensor {down!r} has no partner {up!r}; fetch it again")
        if module in pairs:
            raise ValueError(f"{source}: module {module!r} has two adapters; save one of them")
        pairs[module] = (up, down)
    used = {name for pair in pairs.values() for name in pair}
    others = tuple(name for name in shapes if name not in used)
    for name in others:
        if "lora_magnitude_vector" in name:
            raise ValueError(_dora(source))
        if PART.search(name):
            raise ValueError(
                f"{source}: tensor {name[:100]!r} has no partner, or belongs to a variant of LoRA "
                "that is not known"
            )
    return pairs, others


def _dora(source: str) -> str:
    return (
        f"{source} is a DoRA adapter, whose magnitudes depend on the base, so it is no product of "
        "two factors; merge it with PEFT, then extract with rankscope lora BASE MERGED"
    )


def check_config(source: str, config: Mapping[str, Any]) -> None:
    """Refuse an adapter that is not the product of its factors."""
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise ValueError(f"{source} is an adapter of type {str(kind)[:40]!r}; only LORA is read")
    if config.get("use_dora"):
        raise ValueError(_dora(source))
    for option in VARIANTS:
        if config.get(option):
            raise ValueError(
                f"{source} is of a variant of LoRA ({option}), whose change is no product of its "
                "two factors; merge it with PEFT, then extract with rankscope lora BASE MERGED"
            )
    if config.get("target_parameters"):
        raise ValueError(
            f"{source} adapts stacks of experts (target_parameters), whose factors hold several "
            "matrices; this is not supported"
        )
    start = str(config.get("init_lora_weights", "")).lower()
    if start.startswith(SHIFTED):
        raise ValueError(
            f"{source} was initialised by {start[:20]!r}, which changes the base too; save it with "
            "PEFT's path_initial_model_for_weight_conversion first"
        )
    for option in ("rank_pattern", "alpha_pattern"):
        if not isinstance(config.get(option) or {}, Mapping):
            raise ValueError(f"{source}: {option} is no table of names")


def check_applies(source: str, config: Mapping[str, Any]) -> None:
    """Refuse an adapter that cannot be added to the weights of a base."""
    for option, effect in BEYOND_WEIGHTS.items():
        if config.get(option):
            raise ValueError(
                f"{source} {effect} ({option}), so it is more than a change of the base's weights; "
                "merge it with PEFT"
            )


def scales(source: str, config: Mapping[str, Any], ranks: Mapping[str, int]) -> dict[str, float]:
    """Return alpha / r by module, or alpha / sqrt(r) under rsLoRA; the ranks are the tensors'."""
    rank_patterns = Patterns("rank_pattern", config.get("rank_pattern") or {})
    alpha_patterns = Patterns("alpha_pattern", config.get("alpha_pattern") or {})
    result = {}
    for module, rank in ranks.items():
        stated = rank_patterns.get(module, config.get("r", rank))
        alpha = alpha_patterns.get(module, config.get("lora_alpha", 8))
        if stated != rank or isinstance(stated, bool):
            raise ValueError(
                f"{source}: module {module!r} has factors of rank {rank}, but adapter_config.json "
                f"says {str(stated)[:20]}; correct r or rank_pattern"
            )
        check_alpha(source, module, alpha)
        result[module] = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return result


def check_alpha(source: str, module: str, alpha: object) -> None:
    """Refuse an alpha that is no positive number."""
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not number or not 0 < float(str(alpha)) < 1e30:
        raise ValueError(
            f"{source}: alpha of module {module!r} is {str(alpha)[:20]}, expected a positive "
            "number; without one the scale of the change is unknown"
        )


def config_for(
    ranks: Mapping[str, int],
    *,
    scale: float = 1.0,
    known: Mapping[str, Any] | None = None,
    modules_to_save: Iterable[str] = (),
    **others: Any,
) -> dict[str, Any]:
    """Return the fields of a LoraConfig that gives each module its rank, and alpha = scale * rank.

    With scale 1, a program that ignores the patterns scales right too: lora_alpha equals r.
    Modules of rank 0 are left out.

    known: fields of an earlier configuration that stay.
    """
    chosen = {module: rank for module, rank in ranks.items() if rank > 0}
    if not chosen:
        raise ValueError("no module has a rank above 0, so there is no adapter; allow more")
    largest = max(chosen.values())
    smaller = {anchored(m): rank for m, rank in chosen.items() if rank != largest}
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_dropout": 0.0,
        **(known or {}),
        "r": largest,
        "lora_alpha": _whole(scale * largest),
        "rank_pattern": smaller,
        "alpha_pattern": {pattern: _whole(scale * rank) for pattern, rank in smaller.items()},
        "target_modules": sorted(chosen),
        "modules_to_save": sorted(modules_to_save) or (known or {}).get("modules_to_save"),
        "use_rslora": False,
        "use_dora": False,
    }
    return {**config, **others}


def _whole(alpha: float) -> float | int:
    return int(alpha) if alpha == int(alpha) else alpha


def tensor_names(module: str, *, embedding: bool = False) -> tuple[str, str]:
    """Return the names (up, down) under which PEFT saves the factors of a module."""
    if embedding:
        return tuple(f"{PREFIX}{module}.lora_embedding_{side}" for side in "BA")  # type: ignore[return-value]
    return tuple(f"{PREFIX}{module}.lora_{side}.weight" for side in "BA")  # type: ignore[return-value]
