"""One optimizer step, called directly or, on a GPU, replayed as a CUDA graph."""

import os
import shutil
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from rankscope.lab.training.task import Batch, Problem

Precision = Literal["float32", "bfloat16"]
LossFunction = Callable[..., Tensor]  # of a model and the tensors of a batch
StepFunction = Callable[[Batch], Tensor]

WARM_UP = 3  # steps before a capture, in which libraries choose their kernels and memory
CAPTURING = threading.Lock()
RECOMPILE_LIMIT = 64  # networks of one kind that one process can compile


def plain_step(
    problem: Problem,
    optimizer: torch.optim.Optimizer,
    *,
    accumulate: int,
    clip: float | None,
    precision: Precision,
    loss: LossFunction | None = None,
) -> StepFunction:
    """Return a function that learns from one batch and returns its detached loss.

    loss: `problem.loss` or a function that computes the same.
    """
    model, loss_of = problem.model, loss or problem.loss
    device = next(model.parameters()).device
    parameters = list(model.parameters())

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        losses = []
        for part in _parts(batch, accumulate):
            with mixed_precision(device, precision):
                loss = loss_of(model, *part)
            (loss / accumulate if accumulate > 1 else loss).backward()
            losses.append(loss.detach())
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        return losses[0] if accumulate == 1 else torch.stack(losses).mean()

    return step


def _parts(batch: Batch, count: int) -> list[Batch]:
    if count == 1:
        return [batch]
    return list(zip(*(tensor.chunk(count) for tensor in batch), strict=True))


def compiled_loss(problem: Problem) -> LossFunction:
    """Compile the loss, which fuses small kernels; the first call takes a minute.

    Networks of one kind share their code. By default torch silently stops compiling shared code
    after eight networks, so this raises the limit.
    """
    compiled = torch.compile(problem.loss, dynamic=False)

    def loss(model: nn.Module, *batch: Tensor) -> Tensor:
        with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
            value: Tensor = compiled(model, *batch)
            return value

    return loss


def compiler_at_hand() -> bool:
    """True if Triton can compile kernels here, which takes a C compiler and Python's headers."""
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1":  # torch's own switch
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include"), "Python.h")
    return bool(find_spec("triton") and compiler and shutil.which(compiler) and header.exists())


def mixed_precision(
    device: torch.device, precision: Precision
) -> torch.autocast | nullcontext[None]:
    """Return a context in which products use `precision`."""
    if precision == "float32":
        return nullcontext()
    # A graph would replay weights that were cast outside it with their old values.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


class GraphedStep:
    """A step captured as a CUDA graph on the first batch and replayed on every batch.

    Learning rates are tensors that the graph reads, so schedules keep working.
    """

    def __init__(
        self,
        step: StepFunction,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`paused` returns a context in which this run's other GPU work rests."""
        self._step, self._paused = step, paused
        self._model, self._optimizer = model, optimizer
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch = ()
        self._loss: Tensor | None = None

    def __call__(self, batch: Batch) -> Tensor:
        if self._graph is None:
            self._capture(batch)
        assert self._graph is not None and self._loss is not None
        for static, given in zip(self._batch, batch, strict=True):
            static.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._loss

    def _capture(self, batch: Batch) -> None:
        self._batch = tuple(tensor.clone() for tensor in batch)
        stream = torch.cuda.current_stream()  # see `execution_context`
        graph = torch.cuda.CUDAGraph()
        # Parallel runs warm up and capture one at a time, because libraries set themselves up in
        # the first steps. The thread-local mode lets other threads use the GPU meanwhile.
        with CAPTURING, self._paused():
            with _restored(self._model, self._optimizer):
                for _ in range(WARM_UP):
                    self._step(self._batch)
            self._optimizer.zero_grad(set_to_none=True)
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._loss = self._step(self._batch)
        self._graph = graph


@contextmanager
def _restored(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restore weights, buffers and optimizer state after the body, in place for the graph.

    State that the body created becomes zero, from which SGD and Adam start.
    """
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    states = {id(t): t.clone() for t in _state_tensors(optimizer)}
    yield
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)
        for tensor in _state_tensors(optimizer):
            tensor.copy_(states.get(id(tensor), torch.zeros_like(tensor)))


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
