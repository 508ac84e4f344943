"""Record a call in which weights are changed for one position of their input alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from rankscope.verification.recording import CONVOLUTIONS, FACTORS, Recorder


class AtOnePosition(Recorder):
    """Records one call in which some weights are changed for one position of their input.

    changed: storages of the changed weights, by the address of those that the module computes with.
    place: the position, as a part of the input's length.
    """

    def __init__(
        self,
        watched: dict[str, Tensor],
        statistics: Sequence[Any] | None,
        *,
        changed: Mapping[int, Tensor],
        place: float,
    ) -> None:
        super().__init__(watched, statistics, keeps_scores=True)
        self._changed = dict(changed)
        self._copies: list[Tensor] = []  # of weights, whose addresses must not be used again
        self._place = place
        self._applied = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self._applied or not any(map(self._is_changed, tree_leaves((args, kwargs)))):
            return result
        other_args, other_kwargs = tree_map(self._with_change, (args, kwargs or {}))
        packet = func.overloadpacket
        if packet in FACTORS or packet in CONVOLUTIONS:
            return self._applied_at_place(packet, args, result, func(*other_args, **other_kwargs))
        if isinstance(result, Tensor) and not self._is_changed(result):  # no view: a copy of it
            self._copies.append(result)
            self._changed[address(result)] = func(*other_args, **other_kwargs)
        return result

    def _is_changed(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and address(leaf) in self._changed

    def _with_change(self, leaf: Any) -> Any:
        """Return the same view of the changed weight, for a view of a weight."""
        if not self._is_changed(leaf):
            return leaf
        changed = self._changed[address(leaf)]
        return changed.as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())

    def _applied_at_place(
        self, packet: Any, args: tuple[Any, ...], result: Tensor, changed: Tensor
    ) -> Tensor:
        """Return a projection's result, at one position that with changed weights."""
        if torch.equal(result, changed):  # another part of a packed weight
            return result
        self._applied = True
        if packet in CONVOLUTIONS:
            axis = 1
        else:
            axis = -1 if self._is_changed(args[FACTORS[packet][1]]) else -2
        mixed = result.clone()
        inside, outside = (tensor.movedim(axis, -1) for tensor in (changed, mixed))
        sizes = outside.shape[:-1]
        number = torch.tensor(round(self._place * (sizes.numel() - 1)))
        position = torch.unravel_index(number, sizes)
        outside[position] = inside[position]
        return mixed


def address(tensor: Tensor) -> int:
    """Return where the storage of a tensor begins."""
    return tensor.untyped_storage().data_ptr()


def storage(tensor: Tensor) -> Tensor:
    """Return a copy of all numbers in the storage of a tensor."""
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.as_strided((length,), (1,), 0).clone()
