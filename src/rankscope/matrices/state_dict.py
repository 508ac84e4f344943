"""Manifest of a bare state dict, with rules assumed from the names and shapes of its tensors.

Groups, transposed convolutions and head counts are not in a state dict, so they are never assumed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from rankscope.checkpoints import StoredTensor
from rankscope.matrices.attention import blocks_of
from rankscope.matrices.coverage import Coverage, Covered, tied
from rankscope.matrices.experts import holds_experts, stack_readings
from rankscope.matrices.lora import lora_products
from rankscope.matrices.manifest import Manifest
from rankscope.matrices.model import checked, covered
from rankscope.matrices.projection_names import FUSED
from rankscope.matrices.quantization import why_unreadable
from rankscope.matrices.reading import Reading
from rankscope.matrices.rules import (
    conv_readings,
    embedding_reading,
    flattened_reading,
    linear_reading,
    packed_reading,
    projection_reading,
    recurrent_readings,
    transposed_linear_reading,
)

RECURRENT = re.compile(r"weight_(ih|hh|hr)(_l\d+)?(_reverse)?")
EMBEDDING = re.compile(
    r"wte|wpe|shared|relative_attention_bias|(\w+_)?emb(d|ed(ding)?s?)?(_(in|tokens|positions|dict))?",
    re.IGNORECASE,
)
# GPT-2's Conv1D layers; nanoGPT gives the same names to Linear.
CONV1D = ("c_attn", "c_proj", "c_fc", "q_attn")
MOST_EXPERTS = 2**14  # matrices of one stack
NOTHING: Mapping[str, StoredTensor] = MappingProxyType({})
NO_HEADS = "no per-head products: a state dict has no head counts, pass like="


@dataclass(frozen=True)
class Guess:
    """Readings of one tensor, and the layer they assume; no layer means flattened."""

    layer: str
    readings: tuple[Reading, ...]
    note: str = ""


def assumed_manifest(
    tensors: Mapping[str, Tensor], stored: Mapping[str, StoredTensor] = NOTHING
) -> Manifest:
    """Return how the tensors are read if their names and shapes have their usual meaning.

    stored: what a checkpoint says of them; the tensors may then be on the meta device.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.ndim >= 2}
    readable = {name: shape for name, shape in shapes.items() if not _set_aside(stored.get(name))}
    first_names: dict[tuple[object, ...], str] = {}
    readings: list[Reading] = []
    lines: list[Covered] = []
    for name, shape in shapes.items():
        tensor, known = tensors[name], stored.get(name)
        if known is not None and name not in readable:
            lines.append(_line_aside(known))
            continue
        first = first_names.setdefault(_memory(name, tensor), name)
        if first != name:
            lines.append(tied(name, shape, first))
        elif reason := why_unreadable(tensor):
            lines.append(Covered(name, shape, "not read", reason))
        else:
            guess = _guess(name, readable)
            if known is not None and known.note:
                note = "; ".join(filter(None, (guess.note, known.note)))
                guess = replace(guess, note=note)
            readings += guess.readings
            lines.append(_line(name, shapes, guess))
    factors = {line.tensor: line.shape for line in lines if line.matrices}
    lora, _ = lora_products(factors, {})
    return checked(Manifest(tuple(readings), (), lora, Coverage(tuple(lines))))


def _set_aside(stored: StoredTensor | None) -> bool:
    """Tell whether a stored tensor is no matrix of its own."""
    return stored is not None and bool(stored.tied_to or stored.refusal or stored.part_of)


def _line_aside(stored: StoredTensor) -> Covered:
    if stored.tied_to is not None:
        return tied(stored.name, stored.shape, stored.tied_to)
    if stored.part_of is not None:
        return Covered(stored.name, stored.shape, "read", f"in {stored.part_of}")
    return Covered(stored.name, stored.shape, "not read", stored.refusal)


def _memory(name: str, tensor: Tensor) -> tuple[object, ...]:
    """Return a key that is equal for two names of one tensor, if the tensor has memory."""
    if tensor.layout != torch.strided or tensor.data_ptr() == 0:
        return (name,)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def _line(name: str, shapes: Mapping[str, tuple[int, ...]], guess: Guess) -> Covered:
    line = covered(name, shapes, list(guess.readings), guess.layer)
    if line.status == "flattened":
        return replace(line, how="no rule for this name: first axis x all others")
    if line.status == "vector":
        return replace(line, how=line.how.removeprefix(": "))
    note = f"; {guess.note}" if guess.note else ""
    return replace(line, status="assumed", how=line.how + note)


def _guess(name: str, shapes: Mapping[str, tuple[int, ...]]) -> Guess:
    owner, dot, key = name.rpartition(".")
    shape = shapes[name]
    if dot and not owner:  # no module has an empty name
        return Guess("", (flattened_reading(name, shape),))
    guess = _guess_recurrent(owner, key, shapes) or _guess_multihead(owner, key, shape)
    if guess is None and len(shape) == 3 and holds_experts(name) and shape[0] <= MOST_EXPERTS:
        guess = Guess("expert stack", stack_readings(name, shape))
    if guess is None and key == "weight":
        guess = _guess_weight(owner, shapes)
    return guess or Guess("", (flattened_reading(name, shape),))


def _guess_recurrent(owner: str, key: str, shapes: Mapping[str, tuple[int, ...]]) -> Guess | None:
    match = RECURRENT.fullmatch(key)
    if match is None:
        return None
    prefix = f"{owner}." if owner else ""
    place = (match[2] or "") + (match[3] or "")
    hidden = shapes.get(f"{prefix}weight_hh{place}", (0, 1))
    projected = shapes.get(f"{prefix}weight_hr{place}")
    width = projected[1] if projected else hidden[1]
    gates, left_over = divmod(hidden[0], width) if width else (0, 0)
    kind = {4: "lstm", 3: "gru", 1: "rnn"}.get(gates)
    if kind is None or left_over:
        return None
    layer = int((match[2] or "_l0")[2:])
    halves = layer > 0 and f"{prefix}weight_ih_l{layer}_reverse" in shapes
    readings = recurrent_readings(owner, key, shapes[f"{prefix}{key}"], kind=kind, halves=halves)
    return Guess(
        kind.upper(), readings, f"{kind.upper()} since weight_hh has {gates} x hidden rows"
    )


def _guess_multihead(owner: str, key: str, shape: tuple[int, ...]) -> Guess | None:
    if len(shape) == 2 and key == "in_proj_weight" and shape[0] == 3 * shape[1]:
        whole = packed_reading(owner, shape)
        parts = (
            whole.at("qkv", i, name=whole.name.removesuffix("qkv") + role, kind="block")
            for i, role in enumerate("qkv")
        )
        return Guess("MultiheadAttention", (whole, *parts), NO_HEADS)
    if len(shape) == 2 and key in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        return Guess("MultiheadAttention", (projection_reading(owner, key[0], shape),), NO_HEADS)
    return None


def _guess_weight(owner: str, shapes: Mapping[str, tuple[int, ...]]) -> Guess | None:
    shape = shapes[f"{owner}.weight" if owner else "weight"]
    layer = owner.rpartition(".")[2]
    if len(shape) in (3, 4, 5):
        layer = f"Conv{len(shape) - 2}d"
        if shape[1] == 1 < shape[0]:
            note = "depthwise, or one input channel"
            return Guess(layer, conv_readings(owner, shape, groups=shape[0]), note)
        note = "one group, not transposed: pass like= if it has groups"
        return Guess(layer, conv_readings(owner, shape), note)
    if len(shape) != 2:
        return None
    if EMBEDDING.fullmatch(layer):
        return Guess("Embedding", (embedding_reading(owner, shape),))
    if layer in CONV1D and _has_conv1d(shapes):
        return _fused(Guess("Conv1D", (transposed_linear_reading(owner, shape),)), owner)
    return _fused(Guess("Linear", (linear_reading(owner, shape),)), owner)


def _has_conv1d(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell GPT-2's fused projection, stored (d, 3 d), from nanoGPT's, stored (3 d, d)."""
    fused = [shape for name, shape in shapes.items() if name.endswith("c_attn.weight")]
    return any(len(shape) == 2 and shape[1] == 3 * shape[0] for shape in fused)


def _fused(guess: Guess, owner: str) -> Guess:
    """Add q, k and v as parts where a fused projection has them as blocks."""
    (whole,) = guess.readings
    attention, _, layer = owner.rpartition(".")
    # query_key_value has them head by head, and the number of heads is unknown.
    if layer not in FUSED or layer == "query_key_value" or whole.m != 3 * whole.n:
        return guess
    blocks = blocks_of(whole, attention, {role: whole.n for role in "qkv"})
    return replace(guess, readings=(whole, *blocks), note=NO_HEADS)
