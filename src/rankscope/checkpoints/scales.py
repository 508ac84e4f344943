"""Numbers that need a scale: read with it, or refused by name.

A weight in float8 is one number times one of a scale beside it: per tensor, per row, or per block.
MXFP4 has blocks of 32 numbers with one power of two. A weight of GGUF may have a scale too, of any
type. Without a scale that is known nothing is converted, since wrong numbers look like right ones.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.mxfp4 import Mxfp4
from rankscope.checkpoints.tensors import Loader, StoredTensor, row_ranges

SCALES = ("_scale_inv", "_scale")
# Names beside `weight` in DeepSeek's own format, and in ComfyUI's.
SCALES_BESIDE = ("scale", "scale_weight")
SECOND_SCALES = ("_scale_2", "_global_scale", "_zero_point")
USUAL_BLOCK = 128
BLOCKS, EXPONENTS = "_blocks", "_scales"  # MXFP4 in transformers
UNSCALED = "values without a scale that is known; pass the checkpoint from before the quantisation"

# Formats of packed integers, by the ends of the names beside the weights.
PACKED = (
    (re.compile(r"(.*)\.(qweight|qzeros|scales|g_idx)"), "qweight", "GPTQ or AWQ"),
    (re.compile(r"(.*)\.(weight)(\..*)?"), "weight.absmax", "bitsandbytes"),
    (re.compile(r"(.*)\.(weight|SCB)(_format)?"), "SCB", "bitsandbytes"),
    (re.compile(r"(.*)\.(weight_packed|weight_scale|weight_shape|weight_zero_point|weight_g_idx)"),
     "weight_packed", "compressed-tensors"),
    (re.compile(r"(.*)\.(weight|W_q|scale|zero|meta)"), "W_q", "HQQ"),
    (re.compile(r"(.*)\.(weight|weight_scale|weight_scale_2)"), "weight_scale_2", "ModelOpt"),
)  # fmt: skip


def with_scales(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with weights that have scales as numbers, and others refused."""
    tensors, loaders = dict(checkpoint.tensors), dict(checkpoint.loaders)
    stated = _stated_block(checkpoint.metadata)
    packed = _packed(tensors)
    for name, stored in checkpoint.tensors.items():
        if stored.refusal or stored.tied_to:
            continue
        if name in packed:
            tensors[name] = replace(stored, refusal=packed[name])
        elif "gguf" in checkpoint.metadata:
            if f"{name.removesuffix('.weight')}.scale" in tensors and name.endswith(".weight"):
                _add_scaled(checkpoint, tensors, loaders, stored, None)
        elif stored.dtype.is_floating_point and stored.dtype.itemsize == 1:
            _add_scaled(checkpoint, tensors, loaders, stored, stated)
        elif stored.dtype.is_floating_point and name.endswith(".weight"):
            _refuse_scaled(tensors, stored)
        elif name.endswith(BLOCKS) and stored.dtype == torch.uint8:
            _add_mxfp4(tensors, loaders, stored)
    return replace(checkpoint, tensors=tensors, loaders=loaders)


def _packed(tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Return the reasons to refuse tensors of packed formats, and their scales, by name."""
    reasons: dict[str, str] = {}
    for pattern, mark, tool in PACKED:
        owners = {name.removesuffix(f".{mark}") for name in tensors if name.endswith(f".{mark}")}
        if not owners:
            continue
        for name, stored in tensors.items():
            match = pattern.fullmatch(name)
            if match and match[1] in owners and name not in reasons:
                shown = str(stored.dtype).removeprefix("torch.")
                reasons[name] = (
                    f"{shown} values of {tool}, packed; pass the checkpoint from before the "
                    "quantisation"
                )
    return reasons


def _stated_block(metadata: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the size of a scale's block as config.json states it, or None."""
    config = metadata.get("config")
    quantised = config.get("quantization_config") if isinstance(config, dict) else None
    sizes = quantised.get("weight_block_size") if isinstance(quantised, dict) else None
    if isinstance(sizes, list) and sizes and all(type(s) is int and s > 0 for s in sizes):
        return tuple(sizes)
    return None


def _add_scaled(
    checkpoint: Checkpoint,
    tensors: dict[str, StoredTensor],
    loaders: dict[str, Loader],
    stored: StoredTensor,
    stated: tuple[int, ...] | None,
) -> None:
    """Add a weight times its scale, or refuse it."""
    stored_by_name = checkpoint.tensors
    scales = [stored_by_name[name] for name in _scale_names(stored.name) if name in stored_by_name]
    second_scales = [
        stored_by_name[stored.name + end]
        for end in SECOND_SCALES
        if stored.name + end in stored_by_name
    ]
    if len(scales) + len(second_scales) > 1:
        names = " and ".join(scale.name for scale in (*scales, *second_scales))
        refusal = f"{stored.format} values with several scales, {names}, of which one is known"
        tensors[stored.name] = replace(stored, refusal=refusal)
        return
    scale = scales[0] if scales else None
    blocks = None if scale is None else _blocks(stored.shape, scale.shape, stated)
    readable = scale is not None and scale.dtype.is_floating_point and not scale.refusal
    if scale is None or blocks is None or not readable:
        tensors[stored.name] = replace(stored, refusal=f"{stored.format} {UNSCALED}")
        if scale is not None:  # no matrix of the model
            refusal = scale.refusal or f"scale of {stored.name}, in blocks that are not known"
            tensors[scale.name] = replace(scale, refusal=refusal)
        return
    owner = scale.name.rpartition(".")[2]
    whole = all(size == 1 for size in scale.shape)
    how = "of the whole tensor" if whole else f"per {' x '.join(map(str, blocks))}"
    tensors[stored.name] = replace(
        stored,
        dtype=torch.float32,
        bytes=stored.bytes + scale.bytes,
        note=f"{stored.note or stored.format} times {owner} {how}",
    )
    tensors[scale.name] = replace(scale, part_of=stored.name)
    loaders[stored.name] = Scaled(loaders[stored.name], loaders[scale.name], blocks)


def _scale_names(name: str) -> list[str]:
    """Return the names that the scale of a weight may have."""
    names = [f"{name}{end}" for end in SCALES]
    module, _, parameter = name.rpartition(".")
    return [*names, *(f"{module}.{scale}" for scale in SCALES_BESIDE if parameter == "weight")]


def _refuse_scaled(tensors: dict[str, StoredTensor], stored: StoredTensor) -> None:
    """Refuse a weight of a wide format that has a scale: it may be part of the numbers or not."""
    scale = next((stored.name + end for end in SCALES if stored.name + end in tensors), None)
    if scale is not None:
        refusal = f"{stored.format} values beside {scale}, which may be part of them already"
        tensors[stored.name] = replace(stored, refusal=refusal)


def _blocks(
    shape: tuple[int, ...], scale: tuple[int, ...], stated: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return the size of a scale's block along each axis, or None if the shapes do not fit.

    Shapes alone do not tell: blocks of 128 cut 576 rows into five, the last of which is smaller.
    """
    counts = (*scale, *[1] * len(shape))[: len(shape)]
    if len(scale) > len(shape) or (0 in shape):
        return None
    if all(count == 1 for count in scale):
        return shape
    sizes = stated if stated is not None and len(stated) == 2 else (USUAL_BLOCK,) * 2
    usual = (*[1] * (len(shape) - 2), *sizes)[-len(shape) :]
    blocks = []
    for size, count, block in zip(shape, counts, usual, strict=True):
        if count == 1:
            blocks.append(size)
        elif count == size:
            blocks.append(1)
        elif -(-size // block) == count:
            blocks.append(block)
        else:
            return None
    return tuple(blocks)


@dataclass(frozen=True)
class Scaled:
    """Float8 numbers times their scale, in float32."""

    weight: Loader
    scale: Loader
    blocks: tuple[int, ...]

    def load(self) -> Shaped[Tensor, "..."]:
        return self._scaled(self.weight.load(), 0)

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        return self._scaled(self.weight.load_rows(start, stop), start)

    def _scaled(self, stored: Tensor, first: int) -> Tensor:
        scale = self.scale.load().float()
        scale = scale.reshape(*scale.shape, *[1] * (stored.ndim - scale.ndim))
        W = stored if stored.dtype == torch.float32 else torch.empty(stored.shape)
        for rows in row_ranges(stored):
            numbers = torch.arange(first + rows.start, first + rows.stop)
            part = scale[numbers // self.blocks[0]] if scale.shape[0] > 1 else scale
            for axis in range(1, stored.ndim):
                if 1 < part.shape[axis] < stored.shape[axis]:
                    columns = torch.arange(stored.shape[axis]) // self.blocks[axis]
                    part = part.index_select(axis, columns)
            torch.mul(stored[rows].float(), part, out=W[rows])
        return W


def _add_mxfp4(
    tensors: dict[str, StoredTensor], loaders: dict[str, Loader], stored: StoredTensor
) -> None:
    """Add the weight that blocks and exponents make, and name both as its parts."""
    name = stored.name.removesuffix(BLOCKS)
    scales = tensors.get(name + EXPONENTS)
    fits = (
        scales is not None
        and scales.dtype == torch.uint8
        and stored.ndim >= 2
        and stored.shape[-1] == 16
        and scales.shape == stored.shape[:-1]
        and name not in tensors
    )
    if not fits or scales is None:
        tensors[stored.name] = replace(stored, refusal=f"uint8 {UNSCALED}")
        return
    shape = (*stored.shape[:-2], stored.shape[-2] * 32)
    tensors[stored.name] = replace(stored, part_of=name)
    tensors[scales.name] = replace(scales, part_of=name)
    size = stored.bytes + scales.bytes
    note = "MXFP4, blocks of 32 with one exponent"
    tensors[name] = StoredTensor(name, shape, torch.float32, size, "MXFP4", note=note)
    loaders[name] = Mxfp4(loaders[stored.name], loaders[scales.name])
