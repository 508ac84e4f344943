"""Batches prepared in the background while earlier ones are learnt from."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from rankscope.lab.training.task import Batch


class Prefetched:
    """The batches of successive steps on the device, up to `ahead` of them drawn beforehand.

    With `ahead` 0 each is drawn when it is asked for. Otherwise one thread draws them, in order;
    what it raises is raised where the batch is taken. Leaving the context ends the thread, once
    the batch it is at is done: use it by `with`.
    draw: the batch of a step, on the device or on the CPU.
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
        # One: draws may keep state, and the order of a training does.
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
        # Copied on the stream of whoever learns, which then needs no waiting.
        return tuple(each.to(self._device, non_blocking=True) for each in batch)

    def _fill(self) -> None:
        while self._thread is not None and len(self._waiting) < self._ahead:
            step = next(self._steps, None)
            if step is None:
                return
            self._waiting.append(self._thread.submit(self._prepared, step))

    def _prepared(self, step: int) -> Batch:
        """Pinned for a GPU: only from there are copies made while the CPU goes on."""
        batch = self._draw(step)
        if self._device.type != "cuda":
            return batch
        return tuple(each if each.is_cuda else each.pin_memory() for each in batch)
