"""Where a snapshot is measured: in this process, or in one of its own.

Beside a GPU that trains, the host's cores are free but Python's lock is not: threads that measure
would delay the thread that launches kernels. A process of its own has its own lock. It reads the
staged weights from shared memory, imports no code of the user's, and ends when this one does.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe

from torch import Tensor

from rankscope import snapshot
from rankscope.tracker.shared import SharedMemory
from rankscope.tracker.staging import Place


class HereMeasurer:
    """In the calling thread and `threads` others; on the device where the copies are."""

    def __init__(
        self, plan: snapshot.Plan, *, reference: Mapping[str, Tensor] | None, threads: int
    ) -> None:
        self._plan = plan
        self._reference = reference
        self._threads = threads

    def keep_reference(self, place: Place) -> None:
        """From now on changes are measured from the weights in `place`."""
        self._reference = {name: place.tensors[name].clone() for name in self._plan.parameters}

    def measure(self, place: Place) -> snapshot.Snapshot:
        """What `snapshot.measure` gives for the weights in `place`."""
        if self._reference is not None:
            self._reference = {
                name: tensor.to(place.tensors[name].device)
                for name, tensor in self._reference.items()
            }
        return snapshot.measure(self._plan, place.tensors, self._reference, threads=self._threads)

    def close(self) -> None:
        pass


class ProcessMeasurer:
    """In a process of its own, started at once and ready some seconds later."""

    def __init__(
        self,
        plan: snapshot.Plan,
        *,
        reference: Mapping[str, Tensor] | None,
        threads: int,
        memory: SharedMemory,
    ) -> None:
        self._connection, theirs = Pipe()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "rankscope.tracker.measuring", str(theirs.fileno())],
            pass_fds=[theirs.fileno(), memory.descriptor],
            stdin=subprocess.DEVNULL,
            process_group=0,  # a Ctrl-C for training is not for it: what is under way gets finished
            # The same code, wherever it came from, and no context on anybody's GPU.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""},
        )
        theirs.close()
        host = None if reference is None else {name: t.cpu() for name, t in reference.items()}
        self._setup = (plan, host, threads, memory.descriptor, memory.layout)
        self._set_up = False
        self._memory = memory

    def keep_reference(self, place: Place) -> None:
        self._ask("keep_reference", place)

    def measure(self, place: Place) -> snapshot.Snapshot:
        answer = self._ask("measure", place)
        assert isinstance(answer, snapshot.Snapshot)
        return answer

    def close(self) -> None:
        # Said in words: a forked worker of the user's may hold this connection open.
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._connection.close()
        try:
            self._child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._memory.close()

    def _ask(self, what: str, place: Place) -> object:
        try:
            if not self._set_up:
                # Plain pickle, both ways: what `send` does to tensors needs a child of
                # multiprocessing's own.
                self._connection.send_bytes(pickle.dumps(self._setup))
                self._set_up = True
            self._connection.send((what, place.number))
            answer: object = pickle.loads(self._connection.recv_bytes())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            code = self._child.wait()
            raise RuntimeError(f"the measuring process ended with exit code {code}") from None
        if isinstance(answer, str):
            raise RuntimeError(f"the measuring process failed: {answer}")
        return answer


Measurer = HereMeasurer | ProcessMeasurer
