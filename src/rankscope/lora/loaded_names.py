"""Names that tensors of a checkpoint get in the model that loads it: some are renamed, or tied."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from rankscope.checkpoints import Checkpoint

# Names in transformers' models of the output layer and of the table of tokens it can share.
HEAD, TOKENS = "lm_head", ("wte", "embed_tokens", "word_embeddings", "shared")
CAUSAL = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration")
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
MASKED = ("ForMaskedLM", "ForPreTraining")


def loaded_names(model: nn.Module, stored: list[str]) -> dict[str, str]:
    """Return the name in a model of each tensor of its checkpoint.

    Tensors that the model joins with others, or does not have, are missing. transformers renames
    tensors when it loads them, by its own rules for each class.
    """
    known = model.state_dict()
    names = _renamed_by_transformers(model, stored) if hasattr(model, "base_model_prefix") else {}
    pairs = ((name, names.get(name, name)) for name in stored)
    return {name: loaded for name, loaded in pairs if loaded in known}


def _renamed_by_transformers(model: Any, stored: list[str]) -> dict[str, str]:
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    joins = [rule for rule in rules if isinstance(rule, WeightConverter)]
    known, names = model.state_dict(), {}
    for name in stored:
        loaded, joined = rename_source_key(name, renamings, joins, model.base_model_prefix, known)
        names[name] = loaded if joined is None else ""
    return names


def tied_names(model: nn.Module, names: Container[str]) -> dict[str, str]:
    """Return the further names of parameters that a model has under more than one.

    Each comes with the one of `names`.
    """
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {
        other: name
        for group in groups.values()
        for name in [name for name in group if name in names][:1]
        for other in group
        if other not in names
    }


def without_factors(model: nn.Module) -> frozenset[str]:
    """Return the weights of a model that are of no layer to which PEFT adds factors."""
    adapted = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if (isinstance(module, LAYERS) and getattr(module, "groups", 1) == 1)
        or type(module).__name__ == "Conv1D"  # of transformers
    }
    return frozenset(model.state_dict().keys() - adapted)


def assumed_ties(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the output layer that the configuration of a causal language model ties to tokens."""
    names = list(names)
    is_causal = any(str(name).endswith(CAUSAL) for name in config.get("architectures") or ())
    own_head = any(name.startswith(f"{HEAD}.") for name in names)
    if not is_causal or own_head or config.get("tie_word_embeddings") is False:
        return {}
    table = next(filter(is_token_table, names), None)
    return {} if table is None else {f"{HEAD}.weight": table}


def has_unknown_ties(config: Mapping[str, Any]) -> bool:
    """Tell whether an architecture has its table of tokens under names that it alone knows."""
    masked = any(str(name).endswith(MASKED) for name in config.get("architectures") or ())
    return bool(config.get("is_encoder_decoder")) or (
        masked and config.get("tie_word_embeddings") is not False
    )


def is_token_table(tensor: str) -> bool:
    """Tell the table of tokens in transformers' models by its name."""
    return tensor.removesuffix(".weight").rpartition(".")[2] in TOKENS


def transformers_model(checkpoint: Checkpoint) -> nn.Module:
    """Return the model that transformers builds from a checkpoint's configuration, with no weights.

    The class is one of transformers' own; no code of the checkpoint is run.
    """
    config = checkpoint.metadata.get("config")
    if not isinstance(config, Mapping) or not config.get("architectures"):
        raise ValueError(
            f"{checkpoint.source} has no config.json that names an architecture; leave out "
            "--transformers, or pass the folder that transformers wrote"
        )
    import transformers

    name = str(config["architectures"][0])
    architecture = getattr(transformers, name, None)
    if not isinstance(architecture, type) or not issubclass(architecture, nn.Module):
        raise ValueError(f"{checkpoint.source}: transformers has no architecture {name[:60]!r}")
    with torch.device("meta"):
        return architecture(architecture.config_class.from_dict(dict(config)))  # type: ignore[attr-defined]
