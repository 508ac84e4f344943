"""Copies of weights and scalars, taken on the training path and measured beside it.

Each buffer holds one copy of the watched tensors. On a GPU the copy is queued on the training
stream and an event marks its end. The worker's stream waits for that event, and the training stream
waits for the worker's before a buffer is filled again. The host never waits for the device.
"""

import math
import queue
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import SupportsFloat, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rankscope.matrices import full_tensor
from rankscope.tracker.shared_memory import SharedMemory

Number: TypeAlias = float | Tensor


class Buffer:
    """One copy of the watched tensors, and the events that order its use.

    tensors: the copies since the last `empty`. A tensor that was not given since is not among them.
    sides: copies of other tensors of the same moment, such as gradients, by name.
    copy_seconds: time of the copy. window_seconds: time that gauges took from training.
    """

    def __init__(self, number: int = 0, places: Mapping[str, Tensor] | None = None) -> None:
        """`places` hold the copies; without them they are allocated when they are first filled."""
        self.number = number
        self.tensors = dict(places or {})
        self._places = dict(places or {})
        self._fixed = places is not None
        self.sides: dict[str, Buffer] = {}
        self.copy_seconds = self.window_seconds = 0.0
        self._started: dict[torch.device, torch.cuda.Event] = {}
        self._filled: dict[torch.device, torch.cuda.Event] = {}
        self._measured: torch.cuda.Event | None = None

    def fill(self, tensors: Iterable[tuple[str, Tensor]], *, device: torch.device | None) -> None:
        """Copy `tensors` to `device`, and nothing else is held. A GPU only queues the copies."""
        self.empty()
        self.add(tensors, device=device)

    def empty(self) -> None:
        """Hold no copies; their memory is used again."""
        self.tensors, self.copy_seconds, self.window_seconds = {}, 0.0, 0.0
        for side in self.sides.values():
            side.empty()

    def only(self, names: Collection[str]) -> "Buffer":
        """Return some of these copies, which must have been filled."""
        part = Buffer(self.number)
        part.tensors = {name: copy for name, copy in self.tensors.items() if name in names}
        return part

    def side(self, name: str) -> "Buffer":
        """Return the copies under a name, whose memory is used again as this buffer's is."""
        return self.sides.setdefault(name, Buffer())

    def add(self, tensors: Iterable[tuple[str, Tensor]], *, device: torch.device | None) -> None:
        """Copy more tensors."""
        began = time.perf_counter()
        for name, tensor in tensors:
            copy = self._places.get(name)
            if copy is None or (_kind(copy) != _kind(tensor) and not self._fixed):
                copy = self._places[name] = _empty_like(tensor, device or tensor.device)
            self.tensors[name] = copy
            gpu = tensor.device if tensor.is_cuda else copy.device
            if gpu.type == "cuda" and gpu not in self._started:
                self._start_copying(gpu)
            copy.copy_(tensor.detach(), non_blocking=gpu.type == "cuda")
        for source in self._started:
            self._filled[source] = _record_event(source)
        self.copy_seconds += time.perf_counter() - began

    def _start_copying(self, source: torch.device) -> None:
        if self._measured is not None:
            torch.cuda.current_stream(source).wait_event(self._measured)
        self._started[source] = _record_event(source)

    def mark_filled(self, source: torch.device) -> None:
        """Let the worker wait for all that is queued on a GPU by now, such as sums of a window."""
        if source.type == "cuda":
            self._filled[source] = _record_event(source)

    def wait_filled(self) -> None:
        """Make the worker wait for the copy: its stream on a GPU, else its thread."""
        for side in self.sides.values():
            side.wait_filled()
        for event in self._filled.values():
            if self._on_gpu:
                torch.cuda.current_stream().wait_event(event)
            else:
                event.synchronize()

    def mark_measured(self) -> None:
        """Mark the end of the worker's use of this copy; its results have reached the host."""
        for side in self.sides.values():
            side.mark_measured()
        if not self._filled:
            return
        self.copy_seconds = max(
            (
                started.elapsed_time(self._filled[source]) / 1000
                for source, started in self._started.items()
            ),
            default=0.0,
        )
        self._started, self._filled = {}, {}
        self._measured = (
            _record_event(torch.device("cuda", torch.cuda.current_device()))
            if self._on_gpu
            else None
        )

    @property
    def _on_gpu(self) -> bool:
        return any(tensor.is_cuda for tensor in self.tensors.values())


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _record_event(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _empty_like(tensor: Tensor, device: torch.device) -> Tensor:
    pinned = tensor.is_cuda and device.type == "cpu"
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device, pin_memory=pinned)


class BufferPool:
    """A fixed number of buffers, which bounds memory by that many copies of the weights."""

    def __init__(self, count: int, *, memory: SharedMemory | None = None) -> None:
        """Put the copies into `memory` if given, else allocate them when they are first filled."""
        self._free: queue.SimpleQueue[Buffer] = queue.SimpleQueue()
        for number in range(count):
            self._free.put(Buffer(number, None if memory is None else memory.tensors(number)))

    def take(self, *, timeout: float) -> Buffer | None:
        """Return a free buffer, or None if none came free in time."""
        try:
            return self._free.get(timeout=timeout) if timeout > 0 else self._free.get_nowait()
        except queue.Empty:
            return None

    def give_back(self, buffer: Buffer) -> None:
        self._free.put(buffer)


class Handoff:
    """Scalars on their way to the host, read later by the worker: training does not wait."""

    def __init__(self, columns: Mapping[str, Sequence[Number]]) -> None:
        """`columns` hold what `detached` returned."""
        self._columns = columns
        values = [value for column in columns.values() for value in column]
        devices = {v.device for v in values if isinstance(v, Tensor) and v.is_cuda}
        self._ready = [_record_event(device) for device in devices]

    def read(self) -> dict[str, np.ndarray]:
        for event in self._ready:
            event.synchronize()
        return {name: _float64(column) for name, column in self._columns.items()}


class RowBuffer:
    """Scalars of every step, gathered until the worker gets them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._steps: list[int] = []
        self._columns: dict[str, list[Number]] = {name: [] for name in self.names}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, numbers: Mapping[str, Number]) -> None:
        """Add a row of what `detached` returned; a scalar that is not given is NaN."""
        self._steps.append(step)
        for name, column in self._columns.items():
            column.append(numbers.get(name, math.nan))

    def take(self) -> tuple[list[int], Handoff]:
        """Return the steps and scalars gathered so far, and empty the buffer."""
        steps, columns = self._steps, self._columns
        self._steps, self._columns = [], {name: [] for name in self.names}
        return steps, Handoff(columns)


def detached(value: SupportsFloat) -> Number:
    """Return a copy that later steps cannot overwrite; a tensor stays on its device.

    A sharded scalar (the gradient norm under FSDP2) is gathered, a collective for every rank.
    """
    if isinstance(value, Tensor):
        return full_tensor(value).clone()
    return float(value.item() if isinstance(value, np.ndarray) else value)


def _float64(column: Sequence[Number]) -> np.ndarray:
    tensors = [value for value in column if isinstance(value, Tensor)]
    if not tensors or len(tensors) < len(column):
        return np.array([float(value) for value in column])
    # One transfer for the whole column instead of one for each value.
    return torch.stack([tensor.double().reshape(()) for tensor in tensors]).cpu().numpy()
