"""Batches drawn in the background while training uses earlier ones."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from rankscope.lab.training.task import Batch


class Prefetched:
    """An iterator over the batches of successive steps, up to `ahead` of them drawn early.

    If `ahead` is 0, each batch is drawn when it is asked for. Otherwise one thread draws them in
    order, and its errors are raised where the batch is taken. Use this in a `with` statement:
    leaving it ends the thread after the batch in progress.
    draw: returns the batch of a step, on the device or on the CPU.
    """

    def __init__(
        self,
        draw: Callable[[int], Batch],
        steps: range,
        *,
        ahead: int,
        device: torch.device,
    ) -> None:
        self._draw = draw
        self._steps = iter(steps)
        self._device = device
        self._ahead = ahead
        # One thread only: draws may keep state, and the order of a training does.
        self._thread = ThreadPoolExecutor(1, "prefetch") if ahead else None
        self._waiting: deque[Future[Batch]] = deque()

    def __enter__(self) -> "Prefetched":
        self._fill()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._waiting.clear()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._thread is None:
            batch = self._draw(next(self._steps))
        elif self._waiting:
            batch = self._waiting.popleft().result()
            self._fill()
        else:
            raise StopIteration
        # Copied on the stream that trains, which then need not wait.
        return tuple(tensor.to(self._device, non_blocking=True) for tensor in batch)

    def _fill(self) -> None:
        while self._thread is not None and len(self._waiting) < self._ahead:
            step = next(self._steps, None)
            if step is None:
                return
            self._waiting.append(self._thread.submit(self._prepared, step))

    def _prepared(self, step: int) -> Batch:
        """Draw a batch, pinned for a GPU: only pinned memory is copied asynchronously."""
        batch = self._draw(step)
        if self._device.type != "cuda":
            return batch
        return tuple(tensor if tensor.is_cuda else tensor.pin_memory() for tensor in batch)
