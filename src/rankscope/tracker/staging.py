"""Copies of weights and scalars, taken on the training path and measured beside it.

Each place holds one copy of the watched tensors. On a GPU the copy is queued on the training stream
and an event marks its end; the worker's stream waits for that event, and the training stream waits
for the worker's before a place is filled again. The host never waits for the device.
"""

import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsFloat

import numpy as np
import torch
from torch import Tensor

from rankscope.matrices import full_tensor
from rankscope.tracker.shared import SharedMemory


class Place:
    """One copy of the watched tensors, and the events that order its use."""

    def __init__(self, number: int = 0, tensors: Mapping[str, Tensor] | None = None) -> None:
        self.number = number
        self.tensors = dict(tensors or {})
        self.copy_seconds = 0.0
        self._started: dict[torch.device, torch.cuda.Event] = {}
        self._filled: dict[torch.device, torch.cuda.Event] = {}
        self._measured: torch.cuda.Event | None = None

    def fill(self, tensors: Iterable[tuple[str, Tensor]], *, device: torch.device | None) -> None:
        """Copies `tensors` to `device`; from a GPU, only queues the copies."""
        began = time.perf_counter()
        for name, tensor in tensors:
            buffer = self.tensors.get(name)
            if buffer is None:
                buffer = self.tensors[name] = _buffer_like(tensor, device or tensor.device)
            gpu = tensor.device if tensor.is_cuda else buffer.device
            if gpu.type == "cuda" and gpu not in self._started:
                self._begin(gpu)
            buffer.copy_(tensor.detach(), non_blocking=gpu.type == "cuda")
        for source in self._started:
            self._filled[source] = _record(source)
        self.copy_seconds = time.perf_counter() - began

    def _begin(self, source: torch.device) -> None:
        if self._measured is not None:
            torch.cuda.current_stream(source).wait_event(self._measured)
        self._started[source] = _record(source)

    def wait_filled(self) -> None:
        """Orders the worker after the copy: its stream if that is on the GPU, else its thread."""
        for event in self._filled.values():
            if self._on_gpu:
                torch.cuda.current_stream().wait_event(event)
            else:
                event.synchronize()

    def measured(self) -> None:
        """Marks the end of the worker's use of this copy; results have reached the host by then."""
        if not self._filled:
            return
        self.copy_seconds = max(
            started.elapsed_time(self._filled[source]) / 1000
            for source, started in self._started.items()
        )
        self._started, self._filled = {}, {}
        self._measured = (
            _record(torch.device("cuda", torch.cuda.current_device())) if self._on_gpu else None
        )

    @property
    def _on_gpu(self) -> bool:
        return any(tensor.is_cuda for tensor in self.tensors.values())


def _record(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _buffer_like(tensor: Tensor, device: torch.device) -> Tensor:
    pinned = tensor.is_cuda and device.type == "cpu"
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device, pin_memory=pinned)


class Staging:
    """A fixed number of places, so memory is bounded by that many copies of the watched tensors."""

    def __init__(self, places: int, *, memory: SharedMemory | None = None) -> None:
        """The copies lie in `memory` where given, else where the first filling puts them."""
        self._free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for number in range(places):
            self._free.put(Place(number, None if memory is None else memory.tensors(number)))

    def take(self, *, timeout: float) -> Place | None:
        """A free place, or None if none came free in time."""
        try:
            return self._free.get(timeout=timeout) if timeout > 0 else self._free.get_nowait()
        except queue.Empty:
            return None

    def give_back(self, place: Place) -> None:
        self._free.put(place)


class Handoff:
    """Scalars on their way to the host, read later by the worker: training does not wait."""

    def __init__(self, columns: Mapping[str, Sequence[SupportsFloat]]) -> None:
        """`columns` hold what `kept` returned."""
        self._columns = columns
        values = [value for column in columns.values() for value in column]
        devices = {v.device for v in values if isinstance(v, Tensor) and v.is_cuda}
        self._ready = [_record(device) for device in devices]

    def read(self) -> dict[str, np.ndarray]:
        for event in self._ready:
            event.synchronize()
        return {name: _float64(column) for name, column in self._columns.items()}


def kept(value: SupportsFloat) -> SupportsFloat:
    """A copy that later steps cannot overwrite, still on its device.

    A sharded one (the gradient norm under FSDP2) is made whole, which every rank must call.
    """
    return full_tensor(value).clone() if isinstance(value, Tensor) else value


def _float64(column: Sequence[SupportsFloat]) -> np.ndarray:
    tensors = [value for value in column if isinstance(value, Tensor)]
    if not tensors or len(tensors) < len(column):
        return np.array([float(value) for value in column])
    # One transfer for the whole column instead of one for each value.
    return torch.stack([tensor.double().reshape(()) for tensor in tensors]).cpu().numpy()
