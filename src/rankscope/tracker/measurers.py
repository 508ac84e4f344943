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
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path

from torch import Tensor

from rankscope import snapshot
from rankscope.checkpoints.tensor_file import Source
from rankscope.spectra import Carried
from rankscope.tracker import partial
from rankscope.tracker.buffers import Buffer
from rankscope.tracker.shared_memory import SharedMemory

# Seconds without any CPU time after which a process that has work is taken to be stopped.
PATIENCE = 60.0


class HereMeasurer:
    """Measures in the calling thread and `threads` others, on the device of the copies."""

    def __init__(
        self, plan: snapshot.Plan, *, reference: Mapping[str, Tensor] | None, threads: int
    ) -> None:
        self._plan = plan
        self._reference = reference
        self._threads = threads
        self._carried = Carried()

    @property
    def reference(self) -> Mapping[str, Tensor] | None:
        """The weights from which changes are measured."""
        return self._reference

    def keep_reference(self, buffer: Buffer) -> None:
        """Measure changes from the weights in `buffer` from now on."""
        wanted = [name for name in self._plan.parameters if name in buffer.tensors]
        self._reference = {name: buffer.tensors[name].clone() for name in wanted}
        self._carried = Carried()

    def elsewhere(self) -> Sequence[Source]:
        """Return the parts of the reference that other ranks hold: none."""
        return ()

    def measure(self, buffer: Buffer) -> snapshot.Snapshot:
        """Return the snapshot of the weights in `buffer`."""
        if self._reference is not None:
            self._reference = {
                name: tensor.to(buffer.tensors[name].device) if name in buffer.tensors else tensor
                for name, tensor in self._reference.items()
            }
        return partial.measure(
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
        self._connection, child_end = Pipe()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "rankscope.tracker.measuring_process", str(child_end.fileno())],
            pass_fds=[child_end.fileno(), memory.descriptor],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for training; the snapshot under way is finished
            # The same code, wherever it came from, and no context on anybody's GPU.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""},
        )
        child_end.close()
        host = None if reference is None else {name: t.cpu() for name, t in reference.items()}
        self._setup = (plan, host, threads, memory.descriptor, memory.layout)
        self._setup_sent = False
        self._stuck = False
        self._memory = memory
        self.holds_reference = False  # here too, for gauges
        self.reference: Mapping[str, Tensor] | None = host

    def keep_reference(self, buffer: Buffer) -> None:
        self._request("keep_reference", buffer)
        if self.holds_reference:
            self.reference = {name: tensor.clone() for name, tensor in buffer.tensors.items()}

    def elsewhere(self) -> Sequence[Source]:
        """Return the parts of the reference that other ranks hold: none."""
        return ()

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
            with self._watched():
                return self._answer(method, buffer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            code = self._child.wait()
            why = f"ended with exit code {code}"
            if self._stuck:
                why = f"was stopped: it used no CPU time for {PATIENCE:g} seconds"
            raise RuntimeError(f"the measuring process {why}") from None

    def _answer(self, method: str, buffer: Buffer) -> object:
        if not self._setup_sent:
            # Plain pickle, both ways: what `send` does to tensors needs a child of
            # multiprocessing's own.
            self._connection.send_bytes(pickle.dumps(self._setup))
            self._setup_sent = True
        self._connection.send((method, buffer.number, tuple(buffer.tensors)))
        answer: object = pickle.loads(self._connection.recv_bytes())
        if isinstance(answer, str):
            raise RuntimeError(f"the measuring process failed: {answer}")
        return answer

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Kill the process inside this context if it uses no CPU time for too long.

        A stopped process neither answers nor closes its connection. Large models may take minutes
        to measure, so time alone does not tell.
        """
        done = threading.Event()
        watchman = threading.Thread(target=self._watch, args=(done,), daemon=True)
        watchman.start()
        try:
            yield
        finally:
            done.set()
            watchman.join()

    def _watch(self, done: threading.Event) -> None:
        used, since = _cpu_ticks(self._child.pid), time.monotonic()
        while not done.wait(min(1.0, PATIENCE / 4)):
            now = _cpu_ticks(self._child.pid)
            if now is None or now != used:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE and self._child.poll() is None:
                self._stuck = True
                self._child.kill()  # which also ends a stopped process
                return


def _cpu_ticks(pid: int) -> int | None:
    """Return the CPU time of a process in clock ticks; None if it is gone, or not on Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])


Measurer = HereMeasurer | ProcessMeasurer
