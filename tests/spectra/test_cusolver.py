"""What the batched solver of a GPU rests on, as far as a CPU can tell."""

import gc
import threading
from collections.abc import Callable
from itertools import count

import pytest
from torch import Tensor

from rankscope.spectra.cusolver import PerThread
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

    def taken(meeting: threading.Barrier, found: list[tuple[int, int]]) -> None:
        first, other_device = (handles.get(device, numbers.__next__) for device in (0, 1))
        meeting.wait(timeout=30)  # both threads hold theirs
        assert (first, other_device) == tuple(handles.get(d, numbers.__next__) for d in (0, 1))
        found.append((first, other_device))

    def in_two_threads() -> set[int]:
        found: list[tuple[int, int]] = []
        meeting = threading.Barrier(2)
        threads = [threading.Thread(target=taken, args=(meeting, found)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        return {number for pair in found for number in pair}

    assert in_two_threads() == {0, 1, 2, 3}
    assert in_two_threads() == {0, 1, 2, 3}
