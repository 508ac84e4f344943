"""Weights that changes of a network are measured from, by the names of the network's tensors."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.matrices.effective import Effective, stored_parts
from rankscope.matrices.effective_model import weights_of
from rankscope.matrices.model import manifest
from rankscope.matrices.source import CheckpointTensors
from rankscope.matrices.weights import Weights
from rankscope.matrices.wrappers import state_dict_tensors


def reference_weights(
    source: nn.Module | Mapping[str, Any] | Checkpoint,
    parameters: Iterable[str],
    effective: Iterable[Effective],
    *,
    ties: Mapping[str, str] = MappingProxyType({}),
) -> Weights:
    """Return the tensors of an earlier model, state dict or checkpoint; ValueError if some lack.

    parameters: names of the tensors that are needed.
    effective: those that the present network computes. A state dict from before a layer was
        pruned or adapted holds its weight as it is.
    ties: further names of tied tensors, as `Manifest.ties`; files often keep only one of them.
    """
    wanted, computed = tuple(parameters), tuple(effective)
    if isinstance(source, nn.Module):
        given = weights_of(source, manifest(source).effective)
    else:
        tensors = _named(source, stored_parts(wanted, computed), ties)
        present = tensors.keys()
        as_now = {
            weight.parameter: weight
            for weight in computed
            if weight.parameter not in present or present >= set(weight.parts)
        }
        given = Weights(tensors, as_now).checked()
    missing = [part for name in wanted for part in given.parts(name) if part not in given.stored]
    if missing:
        raise ValueError(
            f"the reference lacks {len(missing)} of the tensors needed, such as {missing[0]!r}; "
            "pass a checkpoint of the same model"
        )
    return given


def _named(
    source: Mapping[str, Any] | Checkpoint, known: tuple[str, ...], ties: Mapping[str, str]
) -> Mapping[str, Tensor]:
    """Return tensors by name; those of a checkpoint are read when they are accessed."""
    if isinstance(source, Checkpoint):
        stored = CheckpointTensors.within(source, known=known)
        return stored.also({first: alias for alias, first in ties.items() if alias in stored})
    tensors = state_dict_tensors(source, known=known)
    return {
        **{first: tensors[alias] for alias, first in ties.items() if alias in tensors},
        **tensors,
    }
