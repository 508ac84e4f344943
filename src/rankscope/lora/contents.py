"""Contents of an adapter that is extracted: its tensors, by their names, and its settings."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.checkpoints.hub import hub_id
from rankscope.lora import peft
from rankscope.lora.changes import Changes
from rankscope.lora.loaded_names import HEAD
from rankscope.lora.placement import Placement, owner, saved_modules
from rankscope.matrices.reading import Reading


class Contents:
    """Tensors of a new adapter, which are read when they are written.

    layout: shape and format of each tensor, by the name under which PEFT stores it.
    saved: modules that are stored whole.
    saved_parameters: number of parameters that are stored whole, biases too.
    """

    def __init__(
        self,
        changes: Changes,
        places: Placement,
        ranks: Mapping[str, int],
        factors: Mapping[str, tuple[Tensor, Tensor]],
    ) -> None:
        self.layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self.saved_parameters = 0
        self._changes, self._ranks = changes, ranks
        self._readings = {r.name: r for r in places.factored if ranks.get(r.name, 0) > 0}
        self._sources: dict[str, Callable[[], Tensor]] = {}
        for name, reading in self._readings.items():
            self._add_factors(reading, ranks[name], *factors[name])
        whole = saved_modules(changes, places)
        self.saved = tuple(whole)
        # PEFT ties an output layer again by itself, and no other.
        tied = [owner(name) for names in whole.values() for name in names if name in changes.ties]
        self._is_tied = [name.rpartition(".")[2] for name in tied] == [HEAD]
        for tensor in (name for names in whole.values() for name in names):
            self._add_whole(tensor, tensor)
        self._biases = [name for name in places.biases if changes.changed(name)]
        layers = {module_of(reading) for reading in self._readings.values()}
        for tensor in self._biases:
            layer, _, key = tensor.rpartition(".")
            self._add_whole(f"{layer}.base_layer.{key}" if layer in layers else tensor, tensor)

    def _add_factors(
        self, reading: Reading, rank: int, B: Float[Tensor, "m r"], A: Float[Tensor, "r n"]
    ) -> None:
        up, down = peft.tensor_names(module_of(reading))
        taps = [size for axis, size in reading.axes if axis.startswith("tap")]
        inputs = A.shape[1] // torch.Size(taps).numel()
        shapes = (B.shape[0], rank, *[1] * len(taps)), (rank, inputs, *taps)
        for name, factor, shape, axis in ((up, B, shapes[0], 1), (down, A, shapes[1], 0)):
            self.layout[name] = (shape, factor.dtype)
            self._sources[name] = _leading(factor, rank, axis, shape)

    def _add_whole(self, name: str, tensor: str) -> None:
        stored = self._changes.stored(tensor)
        self.layout[f"{peft.PREFIX}{name}"] = (stored.shape, stored.dtype)
        self.saved_parameters += torch.Size(stored.shape).numel()
        self._sources[f"{peft.PREFIX}{name}"] = lambda: self._changes.pair(tensor)[1]

    def read(self, name: str) -> Num[Tensor, "..."]:
        """Return a tensor of the layout."""
        return self._sources[name]()

    def config(self) -> dict[str, Any]:
        """Return PEFT's configuration of the adapter."""
        tying: dict[str, Any] = {"ensure_weight_tying": True} if self._is_tied else {}
        return peft.config_for(
            {module_of(r): self._ranks[name] for name, r in self._readings.items()},
            modules_to_save=self.saved,
            **_base_fields(self._changes.base.source),
            bias="all" if self._biases else "none",
            fan_in_fan_out=any(r.axes[0][0] in r.inputs for r in self._readings.values()),
            **tying,
        )


def module_of(reading: Reading) -> str:
    """Return the name of the module that a matrix is the weight of."""
    return owner(reading.parameter)


def _base_fields(source: str) -> dict[str, Any]:
    """Return the fields by which PEFT finds the base: a path, or a name and revision on the hub."""
    named = None if os.path.exists(source) else hub_id(source)
    repo, revision = named or (source, None)
    fields = {"base_model_name_or_path": repo}
    return fields if revision is None else {**fields, "revision": revision}


def _leading(
    factor: Float[Tensor, "a b"], rank: int, axis: int, shape: tuple[int, ...]
) -> Callable[[], Tensor]:
    """Return what gives the leading `rank` rows or columns, with zeros for missing ones."""

    def make() -> Tensor:
        known = min(rank, factor.shape[axis])
        part = factor.narrow(axis, 0, known)
        padding = (0, rank - known) if axis == 1 else (0, 0, 0, rank - known)
        return torch.nn.functional.pad(part, padding).reshape(shape)

    return make
