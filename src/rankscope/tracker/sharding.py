"""What changes when several processes train one model.

Replicated parameters (DDP) need no communication: rank 0 has them all. Sharded ones (FSDP2) are
gathered one at a time, a collective which every rank must join until all have agreed to stop.
"""

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from rankscope.matrices import full_tensor


def is_writer() -> bool:
    """True in the one process that measures and writes."""
    return not _several() or dist.get_rank() == 0


def is_sharded(tensors: Mapping[str, Tensor]) -> bool:
    return _several() and any(hasattr(tensor, "full_tensor") for tensor in tensors.values())


def gathered(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor whole, one at a time."""
    for name, tensor in tensors.items():
        yield name, full_tensor(tensor)


def worst_of_ranks(level: int, *, home: torch.device) -> int:
    """The largest level any rank gave, on every rank; a collective on the device of training."""
    votes = torch.tensor([level], device=home)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return int(votes.item())


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
