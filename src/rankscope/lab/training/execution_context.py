"""The resources one training runs on: one CPU thread, or a CUDA stream."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

THREAD = threading.local()  # holds the streams of each thread


@contextmanager
def execution_context(device: torch.device) -> Iterator[None]:
    """Run the body on one CPU thread, or on this thread's CUDA stream for training.

    With one thread, a run gives the same bits alone and beside others. Numbers below 1e-38 are
    flushed to zero, since a network that reaches them would train at half the speed.
    With a stream for each thread, runs in several threads overlap on one GPU.
    """
    if device.type == "cuda":
        stream = own_stream("training", device)
        with torch.cuda.stream(stream):
            try:
                yield
            finally:  # pending kernels must not outlive their tensors
                stream.synchronize()
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def own_stream(purpose: str, device: torch.device) -> torch.cuda.Stream:
    """Return the calling thread's own stream for `purpose`.

    torch hands out a few streams in turn. If runs shared one, capturing a graph would break both.
    """
    streams: dict[tuple[str, torch.device], torch.cuda.Stream]
    streams = THREAD.__dict__.setdefault("streams", {})
    if (purpose, device) not in streams:
        streams[purpose, device] = torch.cuda.Stream(device)
    return streams[purpose, device]
