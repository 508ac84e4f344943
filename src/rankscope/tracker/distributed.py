"""Trackers of several processes that train one model.

Replicated parameters (DDP) need no communication: rank 0 has them all. Sharded ones (FSDP2) are
gathered one at a time, a collective which every rank must join until all have agreed to stop.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

from rankscope.matrices import full_tensor


class Trouble(IntEnum):
    """State of a rank's tracker, in order of severity."""

    NONE = 0
    FAILURE = 1  # training goes on without tracking
    MISTAKE = 2  # a user's mistake in the constructor, which ends every rank


def is_writer() -> bool:
    """Return whether this is the one process that measures and writes."""
    return not _several() or dist.get_rank() == 0


def is_sharded(tensors: Mapping[str, Tensor]) -> bool:
    return _several() and any(hasattr(tensor, "full_tensor") for tensor in tensors.values())


def gathered(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor whole, one at a time."""
    for name, tensor in tensors.items():
        yield name, full_tensor(tensor)


def worst_of_ranks(trouble: Trouble, *, home: torch.device) -> Trouble:
    """Return the worst trouble of any rank, on every rank; a collective on training's device."""
    votes = torch.tensor([int(trouble)], device=home)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return Trouble(int(votes.item()))


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
