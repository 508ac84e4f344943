"""Trackers of several processes that train one model.

Replicated parameters (DDP) need no communication. Sharded ones (FSDP2) are gathered one at a time,
a collective which every rank must join until all have agreed to stop.
A collective that a rank does not join waits for ever. So ranks meet first, and give up together
when one of them does not come.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from rankscope.matrices import Weights, full_tensor

if TYPE_CHECKING:  # not in every build of torch
    from torch._C._distributed_c10d import Store


class Trouble(IntEnum):
    """State of a rank's tracker, in order of severity."""

    NONE = 0
    FAILURE = 1  # training goes on without tracking
    MISTAKE = 2  # a user's mistake in the constructor, which ends every rank


def several() -> bool:
    """Return whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_writer() -> bool:
    """Return whether this is the one process that measures and writes."""
    return not several() or dist.get_rank() == 0


def is_sharded(tensors: Mapping[str, Tensor]) -> bool:
    return several() and any(hasattr(tensor, "full_tensor") for tensor in tensors.values())


def gathered(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor whole, one at a time."""
    for name, tensor in tensors.items():
        yield name, full_tensor(tensor)


def gathered_share(tensors: Weights, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield some tensors whole, one at a time; every rank gathers the shards of the others too."""
    for name in tensors:
        if name in names:
            yield name, full_tensor(tensors[name])
        elif any(hasattr(part, "full_tensor") for part in tensors.behind(name)):
            full_tensor(tensors[name])


def prefixed(prefix: str, store: "Store") -> "Store":
    """Return the part of a store whose keys begin with `prefix`."""
    part: Store = dist.distributed_c10d.PrefixStore(prefix, store)
    return part


def agreed(home: torch.device, *votes: int) -> tuple[int, ...]:
    """Return the largest of all ranks' votes, one by one; a collective on training's device."""
    tensor = torch.tensor(votes, device=home)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tuple(tensor.tolist())


# Seconds for which a rank waits for the others: until all have made a tracker and have observed
# once, and at later snapshots, where one rank may first evaluate or save a checkpoint. Backends
# abort a training after ten minutes or more of waiting.
START_PATIENCE = 120.0
PATIENCE = 480.0
START_MEETINGS = 2

_trackers: Counter[str] = Counter()  # by path: a tracker on one rank alone disturbs no other


class Meetings:
    """Meetings of the trackers of all ranks, through the store of the default process group."""

    def __init__(self, path: Path) -> None:
        store = dist.distributed_c10d._get_default_store()
        _trackers[str(path)] += 1
        prefix = f"rankscope/{path}/{_trackers[str(path)]}"
        self.store = prefixed(prefix, store)
        self._met = 0

    @property
    def patience(self) -> float:
        """Seconds for which the last meeting waited."""
        return PATIENCE if self._met > START_MEETINGS else START_PATIENCE

    def absent(self) -> list[int]:
        """Wait for all ranks and return those that do not come, the same list on every rank.

        The first to decide decides for all: a rank that comes later finds the others gone.
        """
        meeting, size = self._met, dist.get_world_size()
        self._met += 1
        self.store.set(f"{meeting}/{dist.get_rank()}", "here")
        missing = list(range(size))
        deadline, pause = time.monotonic() + self.patience, 0.001
        while missing:
            missing = [n for n in missing if not self.store.check([f"{meeting}/{n}"])]
            if self.store.check([f"{meeting}/absent"]) or time.monotonic() > deadline:
                break
            if missing:
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
        answer = ",".join(map(str, missing)) or "none"
        decision = self.store.compare_set(f"{meeting}/absent", "", answer).decode()
        if meeting > 1:  # all have left the meeting before the last
            self.store.delete_key(f"{meeting - 2}/{dist.get_rank()}")
            if is_writer():
                self.store.delete_key(f"{meeting - 2}/absent")
        return [] if decision == "none" else [int(n) for n in decision.split(",")]
