"""Adapters as the changes they make: one matrix scale * B A for each pair of factors."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jaxtyping import Num
from torch import Tensor

from rankscope.checkpoints import Checkpoint, StoredTensor, open_checkpoint
from rankscope.lora.adapter import Adapter, Pair, adapter_of, is_adapter
from rankscope.matrices import Coverage, Product, Reading, Views, views
from rankscope.matrices.coverage import Covered
from rankscope.matrices.manifest import Manifest
from rankscope.matrices.source import CheckpointTensors
from rankscope.matrices.state_dict import assumed_manifest

Patterns = Iterable[str] | None
LORA = "lora"  # kind of these matrices


@dataclass(frozen=True)
class Change:
    """A loader of the change that a module's factors make."""

    adapter: Adapter
    module: str

    @property
    def pair(self) -> Pair:
        """Names, shapes and scale of the factors."""
        return self.adapter.pairs[self.module]

    def product(self) -> Product:
        """Read the factors; their product is never multiplied out."""
        return self.adapter.product(self.module)

    def load(self) -> Num[Tensor, "m n"]:
        product = self.product()
        return product.left @ product.right.mT

    def load_rows(self, start: int, stop: int) -> Num[Tensor, "rows n"]:
        product = self.product()
        return product.left[start:stop] @ product.right.mT


def open_scanned(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint; of an adapter, each left factor stands for the change of its module.

    The factors of an adapter that is no sum of products stay matrices of their own, and a problem
    says why. So do those of a model that was saved with its adapter, whose scale is not stored.
    """
    checkpoint = open_checkpoint(path)
    if "adapter_config" not in checkpoint.metadata and not _is_kohya(checkpoint):
        return checkpoint
    try:
        adapter = adapter_of(checkpoint)
    except ValueError as refusal:
        if checkpoint.problems:
            return checkpoint  # they are the reason
        return replace(checkpoint, problems=(f"its factors are scanned one by one: {refusal}",))
    tensors, loaders = dict(checkpoint.tensors), dict(checkpoint.loaders)
    for module, pair in adapter.pairs.items():
        size = sum(checkpoint.tensors[name].bytes for name in (pair.up, pair.down))
        shown = checkpoint.tensors[pair.up].format
        tensors[pair.up] = StoredTensor(pair.up, pair.shape, pair.dtype, size, shown)
        tensors[pair.down] = replace(tensors[pair.down], part_of=pair.up)
        loaders[pair.up] = Change(adapter, module)
    return replace(checkpoint, tensors=tensors, loaders=loaders)


def _is_kohya(checkpoint: Checkpoint) -> bool:
    return is_adapter(checkpoint) and any(".lora_down." in name for name in checkpoint.tensors)


def matrices_of(
    checkpoint: Checkpoint, *, include: Patterns = None, exclude: Patterns = None
) -> Views:
    """Return the matrices of a checkpoint that `open_scanned` opened, with changes by module."""
    stored = CheckpointTensors.within(checkpoint)
    described = stored.described()
    changes = {
        name: loader
        for name, key in stored.names.items()
        if isinstance(loader := checkpoint.loaders.get(key), Change)
    }
    if not changes:
        return views(checkpoint, include=include, exclude=exclude)
    others = {name: tensor for name, tensor in described.items() if name not in changes}
    rest = assumed_manifest(others, stored.stored())
    readings = [_reading(name, change) for name, change in changes.items()]
    lines = [_line(name, change) for name, change in changes.items()]
    manifest = Manifest((*readings, *rest.matrices), (), (), Coverage((*lines, *rest.coverage)))
    return views(checkpoint, like=manifest, include=include, exclude=exclude)


def changes_in(matrices: Views) -> dict[str, Change]:
    """Return the loaders of the changes by the names of their tensors; empty for a model."""
    stored = matrices.tensors.stored
    if not isinstance(stored, CheckpointTensors):
        return {}
    loaders = {name: stored.checkpoint.loaders.get(key) for name, key in stored.names.items()}
    return {name: loader for name, loader in loaders.items() if isinstance(loader, Change)}


def _reading(name: str, change: Change) -> Reading:
    m, n = change.pair.shape
    return Reading(change.module, name, LORA, (("out", m), ("in", n)), ("out",), ("in",))


def _line(name: str, change: Change) -> Covered:
    pair = change.pair
    return Covered(name, pair.shape, "read", f"{pair.scale:.4g} B A, r {pair.rank}", (pair.module,))
