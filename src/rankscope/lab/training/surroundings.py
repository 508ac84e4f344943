"""What a training runs in: one thread of the CPU, or a stream of a GPU."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from rankscope.lab.training.streams import own_stream


def surroundings(device: torch.device) -> AbstractContextManager[None]:
    """What a training runs in, on either kind of device."""
    return stream_of_its_own(device) if device.type == "cuda" else one_thread()


@contextmanager
def one_thread() -> Iterator[None]:
    """So that a run ends with the same bits whether it was alone or one of many.

    In this thread numbers below 1e-38 are zero: a network that decay or memorising drives there
    would train at half the speed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


@contextmanager
def stream_of_its_own(device: torch.device) -> Iterator[None]:
    """So that runs in several threads overlap on a GPU."""
    stream = own_stream("training", device)
    with torch.cuda.stream(stream):
        try:
            yield
        finally:  # what is under way must not outlive its tensors
            stream.synchronize()
