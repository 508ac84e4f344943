"""Two processes of a training, forked from one that has imported a trainer's library once."""

import os
import socket
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch

SOON = 90.0  # seconds after which a rank that waits for another is taken to hang

# A function of a module, by name, of a folder; it returns what a rank reports.
Training = Callable[[Path], str]


class Ranks:
    """A process from which the two ranks of each training are forked."""

    def __init__(self, module: str) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(module, theirs))
        self._process.start()
        theirs.close()

    def train(self, function: str, folder: Path) -> list[str]:
        """Call the module's `function` on two ranks and return what each reports."""
        self._connection.send((function, folder))
        reports: list[str] = self._connection.recv()
        return reports

    def close(self) -> None:
        self._connection.close()
        self._process.join()


def _serve(module: str, connection: Connection) -> None:
    trainings = import_module(module)
    context = get_context("fork")
    while True:
        try:
            function, folder = connection.recv()
        except EOFError:
            return
        port, ranks = _free_port(), []
        for rank in range(2):
            ours, theirs = context.Pipe(duplex=False)
            target = getattr(trainings, function)
            process = context.Process(target=_live, args=(target, folder, rank, port, theirs))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        reports = []
        for process, ours in ranks:
            reports.append(ours.recv() if ours.poll(SOON) else "hangs")
            process.join(5)
            process.kill()
        connection.send(reports)


def _live(training: Training, folder: Path, rank: int, port: int, connection: Connection) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        connection.send(training(folder))
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    except BaseException:
        connection.send(traceback.format_exc())
        raise


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
