"""Adapters on disk, with PEFT's or kohya's names: factors by module, read one at a time."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch
from jaxtyping import Num
from torch import Tensor

from rankscope.checkpoints import Checkpoint, natural_order, open_checkpoint
from rankscope.checkpoints.files import printable
from rankscope.lora import kohya, peft
from rankscope.matrices import Product
from rankscope.matrices.lora import FACTOR_A

Style = Literal["peft", "kohya"]

NAME = re.compile(r"[^\s/\\.\x00-\x1f]+(\.[^\s/\\.\x00-\x1f]+)*")


@dataclass(frozen=True)
class Pair:
    """Two tensors that make a change scale * up @ down, flattened to out x in."""

    module: str
    up: str
    down: str
    up_shape: tuple[int, ...]
    down_shape: tuple[int, ...]
    dtype: torch.dtype
    scale: float

    @property
    def rank(self) -> int:
        """Inner width."""
        return self.down_shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the change as a matrix: outputs x inputs."""
        return self.up_shape[0], prod(self.down_shape[1:])

    @property
    def is_embedding(self) -> bool:
        """Whether the change belongs to a table of tokens, which is stored transposed."""
        return "lora_embedding_" in self.down


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter whose factors stay on disk until they are read.

    config: the adapter_config.json of PEFT; empty for kohya's names.
    others: names of tensors that are no factors: trained norms, embeddings and biases.
    """

    source: str
    style: Style
    pairs: Mapping[str, Pair]
    others: tuple[str, ...]
    config: Mapping[str, Any]
    checkpoint: Checkpoint = field(repr=False)

    def product(self, module: str) -> Product:
        """Read the factors of a module in float64, with the scale in the left one."""
        pair = self.pairs[module]
        up, down = self._factor(pair.up), self._factor(pair.down)
        return Product(left=pair.scale * up.flatten(1), right=down.flatten(1).mT)

    def _factor(self, name: str) -> Num[Tensor, "..."]:
        factor = self.checkpoint.read(name).double()
        if not bool(factor.isfinite().all()):
            raise ValueError(
                f"{self.source}: tensor {name!r} holds NaN or infinity, so its training diverged; "
                "use an earlier checkpoint"
            )
        return factor

    @property
    def parameters(self) -> int:
        """Number of parameters of all factors."""
        return sum(pair.rank * sum(pair.shape) for pair in self.pairs.values())


def open_adapter(path: str | os.PathLike[str]) -> Adapter:
    """Return the LoRA adapter in a folder of PEFT or a safetensors file with kohya's names."""
    return adapter_of(open_checkpoint(path))


def is_adapter(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint holds an adapter, by its tensors or its configuration."""
    if checkpoint.metadata.get("adapter_config"):
        return True
    return any(FACTOR_A.fullmatch(n) or kohya.FACTOR.fullmatch(n) for n in checkpoint.tensors)


def adapter_of(checkpoint: Checkpoint) -> Adapter:
    """Return the adapter that a checkpoint holds; ValueError says what it is otherwise."""
    try:
        return _adapter_of(checkpoint)
    except ValueError as refusal:  # which may quote the configuration
        raise ValueError(printable(str(refusal))) from None


def _adapter_of(checkpoint: Checkpoint) -> Adapter:
    source, config = checkpoint.source, checkpoint.metadata.get("adapter_config")
    if checkpoint.problems:
        raise ValueError(f"{source}: {checkpoint.problems[0]}")
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    style: Style = "kohya" if any(map(kohya.FACTOR.fullmatch, shapes)) else "peft"
    if style == "kohya":
        factors, others = kohya.factors(source, shapes)
    else:
        if not isinstance(config, Mapping):
            raise ValueError(
                f"{source} holds no adapter that is known: no adapter_config.json lies beside it, "
                "and no name ends in lora_down.weight; pass the folder that PEFT wrote"
            )
        peft.check_config(source, config)
        factors, others = peft.factors(source, shapes)
    pairs = {
        module: _pair(checkpoint, module, *factors[module])
        for module in sorted(factors, key=natural_order)
    }
    if not pairs:
        raise ValueError(f"{source} holds no pair of LoRA factors; it has {_some(shapes)}")
    if style == "kohya":
        alphas = {m: kohya.alpha(checkpoint, m) for m in pairs}
        scales = kohya.scales(source, alphas, {m: pair.rank for m, pair in pairs.items()})
    else:
        assert isinstance(config, Mapping)
        scales = peft.scales(source, config, {m: pair.rank for m, pair in pairs.items()})
    pairs = {m: Pair(**{**vars(pair), "scale": scales[m]}) for m, pair in pairs.items()}
    config = config if style == "peft" and isinstance(config, Mapping) else {}
    return Adapter(source, style, pairs, others, config, checkpoint)


def _some(shapes: Mapping[str, Any]) -> str:
    return ", ".join(repr(name[:60]) for name in list(shapes)[:3])


def _pair(checkpoint: Checkpoint, module: str, up: str, down: str) -> Pair:
    source = checkpoint.source
    if not NAME.fullmatch(module):
        raise ValueError(f"{source}: {module[:60]!r} is not the name of a module")
    stored = [checkpoint.tensors[name] for name in (up, down)]
    for tensor in stored:
        if tensor.refusal:
            raise ValueError(f"{source}: tensor {tensor.name!r} is not read: {tensor.refusal}")
        if tensor.ndim < 2 or not tensor.dtype.is_floating_point or 0 in tensor.shape:
            raise ValueError(
                f"{source}: tensor {tensor.name!r} is no factor of a change: it has shape "
                f"{tensor.shape} and format {tensor.format}"
            )
    B, A = stored
    if prod(B.shape[1:]) != A.shape[0]:
        raise ValueError(
            f"{source}: the factors of {module!r} have ranks {prod(B.shape[1:])} and {A.shape[0]}, "
            "which do not fit; a grouped convolution, or a damaged file"
        )
    dtype = torch.promote_types(B.dtype, A.dtype)
    return Pair(module, up, down, B.shape, A.shape, dtype, scale=1.0)
