"""Checkpoint: names, shapes and formats at once, numbers one tensor at a time."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.files import printable
from rankscope.checkpoints.tensors import Loader, StoredTensor


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Tensors on disk by name; opening one reads headers only.

    source: the path or hub id, for messages.
    tensors: what is stored, in the order of the file but for numbered modules, which count up.
    metadata: JSON of the files beside it: "config" (Hugging Face) and "adapter_config" (PEFT).
    problems: sentences on what is missing or damaged; the rest can be read.
    notes: sentences on what is whole and left out.
    """

    source: str
    tensors: Mapping[str, StoredTensor]
    loaders: Mapping[str, Loader] = field(repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def read(self, name: str) -> Shaped[Tensor, "..."]:
        """Read one tensor into memory of its own; ValueError if its format is refused."""
        loader = self._loader(name)
        try:
            return loader.load()
        except ValueError as damage:
            raise ValueError(printable(str(damage))) from None

    def read_rows(self, name: str, start: int, stop: int) -> Shaped[Tensor, "..."]:
        """Read a range of the first axis, such as one expert of a stack."""
        loader, shape = self._loader(name), self.tensors[name].shape
        if not shape or not 0 <= start <= stop <= shape[0]:
            raise ValueError(f"tensor {name!r}: rows {start} to {stop} are not within {shape}")
        return loader.load_rows(start, stop)

    def _loader(self, name: str) -> Loader:
        if name not in self.tensors:
            close = difflib.get_close_matches(name, list(self.tensors), n=3, cutoff=0.4)
            hint = f", close: {', '.join(map(repr, close))}" if close else ""
            raise ValueError(f"{self.source} has no tensor {name!r}{hint}")
        stored = self.tensors[name]
        if stored.refusal:
            raise ValueError(f"tensor {name!r} of {self.source} is not read: {stored.refusal}")
        return self.loaders[name]

    @property
    def bytes(self) -> int:
        """Number of bytes of all tensors on disk; a tied one counts once."""
        own = (t for t in self.tensors.values() if t.tied_to is None and t.part_of is None)
        return sum(tensor.bytes for tensor in own)

    def __repr__(self) -> str:
        return f"Checkpoint({self.source}: {len(self.tensors)} tensors, {self.bytes / 1e9:.3g} GB)"
