"""Measurers of snapshots: one in this process, one in a process of its own.

While a GPU trains, the host's cores are free but Python's lock is not: threads that measure would
delay the thread that launches kernels. A process of its own has its own lock. It reads the copied
weights from shared memory, imports none of the user's code, and ends when this process does.
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
from rankscope.spectra import Carried
from rankscope.tracker.buffers import Buffer
from rankscope.tracker.shared_memory import SharedMemory


class HereMeasurer:
    """Measures in the calling thread and `threads` others, on the device of the copies."""

    def __init__(
        self, plan: snapshot.Plan, *, reference: Mapping[str, Tensor] | None, threads: int
    ) -> None:
        self._plan = plan
        self._reference = reference
        self._threads = threads
        self._carried = Carried()

    def keep_reference(self, buffer: Buffer) -> None:
        """Measure changes from the weights in `buffer` from now on."""
        self._reference = {name: buffer.tensors[name].clone() for name in self._plan.parameters}
        self._carried = Carried()

    def measure(self, buffer: Buffer) -> snapshot.Snapshot:
        """Return `snapshot.measure` of the weights in `buffer`."""
        if self._reference is not None:
            self._reference = {
                name: tensor.to(buffer.tensors[name].device)
                for name, tensor in self._reference.items()
            }
        return snapshot.measure(
            self._plan,
            buffer.tensors,
            self._reference,
            threads=self._threads,
            carried=self._carried,
        )

    def close(self) -> None:
        pass


class ProcessMeasurer:
    """Measures in a process of its own, which starts at once and is ready some seconds later."""

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
            [sys.executable, "-m", "rankscope.tracker.measuring_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno(), memory.descriptor],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for training; the snapshot under way is finished
            # The same code, wherever it came from, and no context on anybody's GPU.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""},
        )
        theirs.close()
        host = None if reference is None else {name: t.cpu() for name, t in reference.items()}
        self._setup = (plan, host, threads, memory.descriptor, memory.layout)
        self._setup_sent = False
        self._memory = memory

    def keep_reference(self, buffer: Buffer) -> None:
        self._request("keep_reference", buffer)

    def measure(self, buffer: Buffer) -> snapshot.Snapshot:
        answer = self._request("measure", buffer)
        assert isinstance(answer, snapshot.Snapshot)
        return answer

    def close(self) -> None:
        # An explicit message: a forked worker of the user's may hold this connection open.
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._connection.close()
        try:
            self._child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._memory.close()

    def _request(self, method: str, buffer: Buffer) -> object:
        try:
            if not self._setup_sent:
                # Plain pickle, both ways: what `send` does to tensors needs a child of
                # multiprocessing's own.
                self._connection.send_bytes(pickle.dumps(self._setup))
                self._setup_sent = True
            self._connection.send((method, buffer.number))
            answer: object = pickle.loads(self._connection.recv_bytes())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            code = self._child.wait()
            raise RuntimeError(f"the measuring process ended with exit code {code}") from None
        if isinstance(answer, str):
            raise RuntimeError(f"the measuring process failed: {answer}")
        return answer


Measurer = HereMeasurer | ProcessMeasurer
