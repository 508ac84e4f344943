"""Sources of weights: a model, a state dict, or a checkpoint on disk."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, StoredTensor, open_checkpoint
from rankscope.matrices.wrappers import names_without_wrappers

Source = nn.Module | Mapping[str, Any] | Checkpoint | str | os.PathLike[str]


def opened(source: object) -> nn.Module | Mapping[Any, Any] | Checkpoint:
    """Return the model, state dict or checkpoint itself, or the checkpoint at a path."""
    if isinstance(source, nn.Module | Mapping | Checkpoint):
        return source
    if isinstance(source, str | os.PathLike):
        return open_checkpoint(source)
    hint = "; singular_values() takes a matrix" if isinstance(source, Tensor) else ""
    raise ValueError(
        "expected a model, a state dict or the path of a checkpoint, got "
        f"{type(source).__name__}{hint}"
    )


@dataclass(eq=False)
class CheckpointTensors(Mapping[str, Tensor]):
    """Tensors of a checkpoint by name without wrappers, each read when it is accessed.

    Only the last one that was read stays in memory, so that one stack gives many matrices.

    names: their names in the checkpoint.
    """

    checkpoint: Checkpoint
    names: Mapping[str, str]
    _last: tuple[str, Tensor] | None = field(default=None, repr=False)

    @classmethod
    def within(
        cls, checkpoint: Checkpoint, *, known: tuple[str, ...] | list[str] = ()
    ) -> "CheckpointTensors":
        """Return the tensors of a checkpoint; `known` names stay as they are."""
        axes = {name: stored.ndim for name, stored in checkpoint.tensors.items()}
        plain = names_without_wrappers(axes, known=known)
        return cls(checkpoint, {name: stored for stored, name in plain.items()})

    def __getitem__(self, name: str) -> Shaped[Tensor, "..."]:
        stored = self.names[name]
        last = self._last
        if last is None or last[0] != stored:
            self._last = last = None  # two large tensors need not fit into memory
            last = self._last = (stored, self.checkpoint.read(stored))
        return last[1]

    def forget(self) -> None:
        """Let go of the tensor that was read last."""
        self._last = None

    def __iter__(self) -> Iterator[str]:
        tensors = self.checkpoint.tensors
        return (name for name, stored in self.names.items() if not tensors[stored].refusal)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def also(self, aliases: Mapping[str, str]) -> "CheckpointTensors":
        """Return the same tensors with further names for some."""
        more = {alias: self.names[name] for alias, name in aliases.items()}
        return CheckpointTensors(self.checkpoint, {**more, **self.names})

    def described(self) -> dict[str, Tensor]:
        """Return tensors without values, of the right shapes and types."""
        return {
            name: torch.empty(stored.shape, dtype=stored.dtype, device="meta")
            for name, stored in self.stored().items()
        }

    def stored(self) -> dict[str, StoredTensor]:
        """Return the descriptions by name without wrappers."""
        plain = {stored: name for name, stored in self.names.items()}
        tensors = self.checkpoint.tensors
        return {
            name: replace(
                tensors[stored],
                name=name,
                tied_to=plain.get(tensors[stored].tied_to or ""),
                part_of=plain.get(tensors[stored].part_of or ""),
            )
            for name, stored in self.names.items()
        }
