"""CUDA streams that one thread keeps for good.

torch hands out a few streams in turn. One that changed hands while another run captures a graph on
it would break both, so a thread takes one for each purpose and keeps it for all its runs.
"""

import threading

import torch

OWN = threading.local()


def own_stream(purpose: str, device: torch.device) -> torch.cuda.Stream:
    """The calling thread's stream for `purpose`."""
    streams: dict[tuple[str, torch.device], torch.cuda.Stream]
    streams = OWN.__dict__.setdefault("streams", {})
    if (purpose, device) not in streams:
        streams[purpose, device] = torch.cuda.Stream(device)
    return streams[purpose, device]
