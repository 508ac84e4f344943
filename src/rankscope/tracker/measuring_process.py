"""The measuring process, `python -m rankscope.tracker.measuring_process DESCRIPTOR`.

DESCRIPTOR is that of a connection to the tracker. The process receives the plan and the location of
the weights, then requests. It answers a request with the measured arrays, or with a string that
says what went wrong. It ends when the connection does.
"""

import os
import pickle
import sys
from multiprocessing.connection import Connection

import torch

from rankscope.tracker.buffers import Buffer
from rankscope.tracker.measurers import HereMeasurer
from rankscope.tracker.shared_memory import SharedMemory


def main() -> None:
    os.nice(10)  # training comes first
    torch.set_num_threads(1)
    connection = Connection(int(sys.argv[1]))
    try:
        setup = pickle.loads(connection.recv_bytes())
        if setup is None:  # the tracker closed before there was anything to measure
            return
        plan, reference, threads, descriptor, layout = setup
        memory = SharedMemory(descriptor, layout)
        measurer = HereMeasurer(plan, reference=reference, threads=threads)
        while (request := connection.recv()) is not None:
            method, number, names = request
            try:
                copies = memory.tensors(number)
                buffer = Buffer(number, {name: copies[name] for name in names})
                answer = getattr(measurer, method)(buffer)
            except Exception as failure:
                answer = f"{type(failure).__name__}: {failure}"
            connection.send_bytes(pickle.dumps(answer))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the tracker closed, or its process is gone


if __name__ == "__main__":
    with torch.no_grad():
        main()
    os._exit(0)  # nothing is left to tidy up, and the tracker waits for the end of this process
