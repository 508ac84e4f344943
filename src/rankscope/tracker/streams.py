"""The worker's own stream on a GPU, so that its kernels overlap with training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rankscope.tracker.buffers import Buffer


class OwnStream:
    """A stream that is made when it is first needed."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def of(self, buffer: Buffer) -> Iterator[None]:
        """Use the stream inside this context, if the copies in `buffer` are on a GPU."""
        tensors = buffer.tensors.values()
        device = next(iter(tensors)).device if tensors else torch.device("cpu")
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            # torch hands out the few streams of each priority in turn, and a tracker must not share
            # one on which training captures a graph. Training rarely uses high priority.
            self._stream = self._stream or torch.cuda.Stream(device, priority=-1)
            with torch.cuda.stream(self._stream):
                yield
