"""Training by several processes, each on its part of every batch.

Gradients are averaged over the processes. The loop sees the other processes through a `Group`;
a training by one process has the group `Alone`.
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

# Only for a process that hangs: torchrun or a closed connection reports one that ended at once.
TIMEOUT = timedelta(hours=2)


class SharedFailure(RuntimeError):
    """A failure in one process, raised in all of them so that they can start another run."""

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
        """True in the process that measures, writes and decides, which is the one of rank 0."""
        return True

    @property
    def noise(self) -> str:
        """The purpose of this process's noise generators; each process has its own."""
        return "noise"

    def own(self, indices: Int[Tensor, " batch"]) -> Int[Tensor, " part"]:
        """Return the part of a batch that this process learns from."""
        return indices

    def mean(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Average a loss over all processes."""
        return loss

    def decide(self, question: Callable[[], bool]) -> bool:
        """Return the first process's answer in all processes; only that process is asked."""
        return question()

    def gathered(self, number: int) -> list[int]:
        """Collect one number from each process, in order of rank."""
        return [number]

    def in_turn(self) -> AbstractContextManager[None]:
        """Run the body in the first process, then in the others; all raise what one raises."""
        return nullcontext()

    def shared(self, problem: Problem, *, parts: int, compiled: bool = False) -> Problem:
        """Return the problem with a model whose gradients are averaged over all processes.

        parts: how often the model is called before the optimizer steps.
        compiled: compile the model where the loss around it cannot be compiled.
        """
        return problem


@dataclass(frozen=True)
class Together:
    """The group of several processes under torch.distributed; `Alone` documents the methods."""

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
        numbers = [0] * self.size
        dist.all_gather_object(numbers, number)
        return numbers

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        if not self.leads:
            self._share_failure()
        try:
            yield
        except Exception as error:
            self._share_failure(error)  # raises
        if self.leads:
            self._share_failure()
        self._share_failure()

    def _share_failure(self, error: Exception | None = None) -> None:
        """Raise `SharedFailure` in all processes if any of them has an error."""
        own_failure = None
        if error is not None:
            where = f" (process {self.rank} of {self.size})" if self.rank else ""
            own_failure = f"{sentence(error)}{where}", "".join(traceback.format_exception(error))
        failures: list[tuple[str, str] | None] = [None] * self.size
        dist.all_gather_object(failures, own_failure)
        for failure in filter(None, failures):
            raise SharedFailure(*failure) from error

    def shared(self, problem: Problem, *, parts: int, compiled: bool = False) -> Problem:
        device = next(problem.model.parameters()).device
        # Compiled inside the wrapper, whose hooks and switches would break the graph.
        model = torch.compile(problem.model, dynamic=False) if compiled else problem.model
        wrapped = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )
        shared = copy.copy(problem)
        shared.model = SyncAfterLastPart(wrapped, parts=parts)
        return shared


Group = Alone | Together


def current_group() -> Group:
    """Return the group of all processes in torch's default process group."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return Alone()
    return Together(dist.get_rank(), dist.get_world_size())


class SyncAfterLastPart(nn.Module):
    """A model called `parts` times a step, whose gradients are exchanged after the last call."""

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
    """Join the processes that torchrun started into one group while the body runs.

    If the body raises, the group is not destroyed: that would wait for processes that may
    themselves be waiting.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Host tensors travel by gloo, which does not wait for the GPU.
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=TIMEOUT, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    yield
    dist.destroy_process_group()
