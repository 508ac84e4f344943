"""Batches in order, errors where they belong, nothing left running."""

import threading
from collections.abc import Iterator

import pytest
import torch

from rankscope.lab.training.prefetch import Prefetched
from rankscope.lab.training.task import Batch

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("prefetch")]


def numbered(step: int) -> Batch:
    return (torch.tensor([step]), torch.tensor([step * step]))


@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_batches_come_in_order(ahead: int) -> None:
    with Prefetched(numbered, range(4, 9), ahead=ahead, device=CPU) as batches:
        taken = [tuple(int(tensor) for tensor in batch) for batch in batches]
        assert taken == [(step, step * step) for step in range(4, 9)]
        with pytest.raises(StopIteration):
            next(batches)


def test_so_many_are_drawn_ahead_and_no_more() -> None:
    drawn, third = [], threading.Event()

    def draw(step: int) -> Batch:
        drawn.append(step)
        if len(drawn) == 3:
            third.set()
        return numbered(step)

    with Prefetched(draw, range(100), ahead=2, device=CPU) as batches:
        next(batches)  # one is taken, so a third may be begun
        assert third.wait(10)
    assert drawn == [0, 1, 2]


def test_nothing_is_drawn_ahead_where_nothing_is_asked_for() -> None:
    drawn = []

    def draw(step: int) -> Batch:
        drawn.append((step, threading.current_thread()))
        return numbered(step)

    with Prefetched(draw, range(5), ahead=0, device=CPU) as batches:
        assert drawn == []
        next(batches)
    assert drawn == [(0, threading.current_thread())]


@pytest.mark.parametrize("ahead", [0, 3])
def test_errors_surface_at_their_step(ahead: int) -> None:
    def draw(step: int) -> Batch:
        if step == 2:
            raise ValueError("row 7 does not decode")
        return numbered(step)

    with Prefetched(draw, range(5), ahead=ahead, device=CPU) as batches:
        assert [int(next(batches)[0]) for _ in range(2)] == [0, 1]
        with pytest.raises(ValueError, match="row 7 does not decode"):
            next(batches)


def test_leaving_cancels_what_is_not_begun() -> None:
    begun, go = threading.Event(), threading.Event()
    drawn = []

    def draw(step: int) -> Batch:
        drawn.append(step)
        begun.set()
        assert go.wait(10)
        return numbered(step)

    with (
        pytest.raises(KeyboardInterrupt),
        Prefetched(draw, range(100), ahead=8, device=CPU),
    ):
        assert begun.wait(10)
        threading.Timer(0.05, go.set).start()  # while the context is being left
        raise KeyboardInterrupt
    assert drawn == [0]


@pytest.mark.gpu
def test_batches_come_to_the_gpu() -> None:
    def draw(step: int) -> Batch:
        return (torch.full((1000,), step),)

    cuda = torch.device("cuda")
    with Prefetched(draw, range(50), ahead=3, device=cuda) as batches:
        for step, (batch,) in enumerate(batches):
            assert batch.is_cuda and torch.equal(batch.cpu(), torch.full((1000,), step))
