"""One training by several processes: each learns from its part of every batch, gradients are means.

What the loop knows of the others is a `Group`; a training by one process has the trivial one.
"""

import copy
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankscope.lab.running.processes import sentence
from rankscope.lab.training.task import Problem

# For a process that is stuck: of one that ended, torchrun or its closed connections tell at once.
PATIENCE = timedelta(hours=2)


class SharedFailure(RuntimeError):
    """One process failed where all of them hear of it, so that they can go on with another run."""

    def __init__(self, sentence: str, trace: str) -> None:
        super().__init__(sentence)
        self.trace = trace


@dataclass(frozen=True)
class Alone:
    """The group of a single process."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process measures, writes and decides: the one of rank 0."""
        return True

    @property
    def noise(self) -> str:
        """The purpose of its generators of noise, which differs from that of the others."""
        return "noise"

    def own(self, indices: Int[Tensor, " batch"]) -> Int[Tensor, " part"]:
        """The part of a batch that this process learns from."""
        return indices

    def mean(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Over all processes."""
        return loss

    def decide(self, question: Callable[[], bool]) -> bool:
        """The answer of the first process, which alone is asked."""
        return question()

    def gathered(self, number: int) -> list[int]:
        """What each process says, in the order of their ranks."""
        return [number]

    def in_turn(self) -> AbstractContextManager[None]:
        """The first process, then the others; what one of them raises, all raise."""
        return nullcontext()

    def shared(self, problem: Problem, *, parts: int) -> Problem:
        """The problem with a model whose gradients are means over all processes.

        parts: how often the model is called before the optimizer steps.
        """
        return problem


@dataclass(frozen=True)
class Together:
    """Processes under torch.distributed; what `Alone` does as several do it."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def noise(self) -> str:
        return "noise" if self.leads else f"noise of process {self.rank}"

    def own(self, indices: Int[Tensor, " batch"]) -> Int[Tensor, " part"]:
        return indices.tensor_split(self.size)[self.rank]

    def mean(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        total = loss.clone()
        dist.all_reduce(total)
        return total / self.size

    def decide(self, question: Callable[[], bool]) -> bool:
        answer = torch.tensor([int(self.leads and question())])
        dist.broadcast(answer, src=0)
        return bool(answer.item())

    def gathered(self, number: int) -> list[int]:
        said = [0] * self.size
        dist.all_gather_object(said, number)
        return said

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        if not self.leads:
            self._compare()
        try:
            yield
        except Exception as error:
            self._compare(error)  # raises
        if self.leads:
            self._compare()
        self._compare()

    def _compare(self, error: Exception | None = None) -> None:
        """A failure of any process becomes one of all."""
        mine = None
        if error is not None:
            where = f" (process {self.rank} of {self.size})" if self.rank else ""
            mine = f"{sentence(error)}{where}", "".join(traceback.format_exception(error))
        said: list[tuple[str, str] | None] = [None] * self.size
        dist.all_gather_object(said, mine)
        for words in filter(None, said):
            raise SharedFailure(*words) from error

    def shared(self, problem: Problem, *, parts: int) -> Problem:
        device = next(problem.model.parameters()).device
        wrapped = DistributedDataParallel(
            problem.model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )
        seen = copy.copy(problem)
        seen.model = LastPartTravels(wrapped, parts=parts)
        return seen


Group = Alone | Together


def current_group() -> Group:
    """All processes that are in torch's default group with this one."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return Alone()
    return Together(dist.get_rank(), dist.get_world_size())


class LastPartTravels(nn.Module):
    """Calls come in rounds of `parts`; gradients are exchanged after the last of each only."""

    def __init__(self, model: DistributedDataParallel, *, parts: int) -> None:
        super().__init__()
        self.model = model
        self._parts = parts
        self._calls = 0

    def forward(self, *inputs: Any) -> Any:
        self._calls += 1
        last = self._calls % self._parts == 0
        with nullcontext() if last else self.model.no_sync():
            return self.model(*inputs)


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Inside, the processes that torchrun started are one group.

    A group that something was raised in is left as it is: taking it down waits for the others,
    which may wait themselves.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # What is on the host goes by gloo, and does not wait for the GPU.
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=PATIENCE, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=PATIENCE)
    yield
    dist.destroy_process_group()
