"""What the batched solver of a GPU rests on, as far as a CPU can tell."""

import ctypes
import gc
import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from rankscope.spectra import cusolver
from rankscope.spectra.cusolver import LOWER, REAL64, VECTORS, CuSolver, PerThread
from rankscope.spectra.engine import Torch
from rankscope.spectra.guards import is_right


class Lying(Torch):
    """A solver that is wrong about one matrix of a stack."""

    def __init__(self, lie: Callable[[Tensor, Tensor], None]) -> None:
        self._lie = lie

    def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = super().eigenvectors(G)
        self._lie(values[1], vectors[1])
        return values, vectors


def wrong_value(values: Tensor, vectors: Tensor) -> None:
    values[7] *= 1 + 1e-9


def wrong_vector(values: Tensor, vectors: Tensor) -> None:
    vectors[:, 3] += 1e-6 * vectors[:, 0]


def not_a_number(values: Tensor, vectors: Tensor) -> None:
    values[0] = float("nan")


def test_an_engine_that_computes_right_is_accepted() -> None:
    assert is_right(Torch(), "cpu")


@pytest.mark.parametrize("lie", [wrong_value, wrong_vector, not_a_number])
def test_an_engine_that_is_wrong_is_refused(lie: Callable[[Tensor, Tensor], None]) -> None:
    assert not is_right(Lying(lie), "cpu")


def test_each_thread_has_a_handle_of_its_own_that_later_threads_take_over() -> None:
    """A handle holds memory of the GPU, and each tracker has a thread of its own."""
    handles: PerThread[int] = PerThread()
    numbers = count()

    def take_handles(meeting: threading.Barrier, handles_by_thread: list[tuple[int, int]]) -> None:
        first, other_device = (handles.get(device, numbers.__next__) for device in (0, 1))
        meeting.wait(timeout=30)  # both threads hold theirs
        assert (first, other_device) == tuple(handles.get(d, numbers.__next__) for d in (0, 1))
        handles_by_thread.append((first, other_device))

    def in_two_threads() -> set[int]:
        handles_by_thread: list[tuple[int, int]] = []
        meeting = threading.Barrier(2)
        threads = [
            threading.Thread(target=take_handles, args=(meeting, handles_by_thread))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        return {number for pair in handles_by_thread for number in pair}

    assert in_two_threads() == {0, 1, 2, 3}
    assert in_two_threads() == {0, 1, 2, 3}


class Library(ctypes.CDLL):
    """cuSOLVER's functions on memory of the CPU, with the arguments of its manual.

    bytes_each: workspace of one matrix.
    failed: positions in each call at which the solver does not converge.
    """

    def __init__(self, bytes_each: int = 8, failed: tuple[int, ...] = (), status: int = 0) -> None:
        self.bytes_each, self.failed, self.status = bytes_each, failed, status
        self.handles, self.counts, self.streams = count(1), [], []

    def cusolverDnCreate(self, handle) -> int:
        handle._obj.value = next(self.handles)
        return 0

    def cusolverDnCreateParams(self, parameters) -> int:
        parameters._obj.value = 1000
        return 0

    def cusolverDnSetStream(self, handle, stream) -> int:
        self.streams.append((handle.value, stream.value))
        return 0

    def cusolverDnXsyevBatched_bufferSize(
        self, handle, parameters, job, uplo, n, of_a, A, lda, of_w, W, compute, there, here, count
    ) -> int:
        there._obj.value, here._obj.value = self.bytes_each * count.value, 16
        return 0

    def cusolverDnXsyevBatched(
        self, handle, parameters, job, uplo, n, of_a, A, lda, of_w, W, compute, *rest
    ) -> int:
        _, there_bytes, _, here_bytes, info, batch = rest
        assert (uplo.value, parameters.value) == (LOWER, 1000) and lda.value == n.value
        assert {of_a.value, of_w.value, compute.value} == {REAL64}
        assert there_bytes.value == self.bytes_each * batch.value and here_bytes.value == 16
        self.counts.append(batch.value)
        m, b = n.value, batch.value
        G = torch.frombuffer(memory(A, 8 * b * m * m), dtype=torch.float64).view(b, m, m)
        values, vectors = torch.linalg.eigh(G.mT)
        if job.value == VECTORS:
            G.copy_(vectors.mT)  # by columns
        torch.frombuffer(memory(W, 8 * b * m), dtype=torch.float64).copy_(values.flatten())
        codes = torch.frombuffer(memory(info, 4 * b), dtype=torch.int32)
        codes[[i for i in self.failed if i < b]] = 1
        return self.status


def memory(pointer: ctypes.c_void_p, size: int) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * size).from_address(pointer.value)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))


def grams(batch: int, m: int) -> Tensor:
    W = torch.randn(batch, m, 2 * m, generator=torch.Generator().manual_seed(0)).double()
    return W @ W.mT


def test_cusolver_is_called_as_its_manual_says(on_cpu) -> None:
    library, G = Library(), grams(5, 6)
    engine = CuSolver(library)
    exact = torch.linalg.eigvalsh(G)
    torch.testing.assert_close(engine.eigenvalues(G.clone()), exact)
    values, Q = engine.eigenvectors(G.clone())
    torch.testing.assert_close(G @ Q, Q * values[:, None])
    with torch.device("meta"):  # where new tensors go by default is of no concern
        assert is_right(engine, "cpu")
    assert set(library.streams) == {(1, 77)}  # one handle
    assert engine.eigenvalues(G[:0]).shape == (0, 6)


def test_large_stacks_are_given_in_parts(on_cpu, monkeypatch) -> None:
    G = grams(7, 3)
    library = Library(bytes_each=100)
    monkeypatch.setattr(cusolver, "WORKSPACE", 250)
    values = CuSolver(library).eigenvalues(G.clone())
    torch.testing.assert_close(values, torch.linalg.eigvalsh(G))
    assert library.counts == [2, 2, 2, 1]
    monkeypatch.setattr(cusolver, "MATRICES", 1)
    library.counts.clear()
    CuSolver(library).eigenvalues(G.clone())
    assert library.counts == [1] * 7


def test_what_cusolver_does_not_solve_is_nan_or_raises(on_cpu) -> None:
    values = CuSolver(Library(failed=(1,))).eigenvalues(grams(3, 4))
    assert values.isnan().all(1).tolist() == [False, True, False]
    with pytest.raises(torch.linalg.LinAlgError, match="status 7"):
        CuSolver(Library(status=7)).eigenvalues(grams(3, 4))
