import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch

from rankscope.lab.training import execution_context as module
from rankscope.lab.training.execution_context import execution_context, own_stream

GPU, Stream = torch.device("cuda", 0), torch.cuda.Stream


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def keeps_denormals() -> bool:
    """True if a number below the normal range of float32 survives a product."""
    return bool(torch.tensor([1e-30]) * 1e-10 > 0)


def test_the_cpu_gives_one_thread_without_denormal_numbers() -> None:
    """The settings before are restored, also after a failure."""
    with pytest.raises(KeyError), execution_context(torch.device("cpu")):
        assert torch.get_num_threads() == 1 and not keeps_denormals()
        raise KeyError
    assert torch.get_num_threads() == 2 and keeps_denormals()


def test_a_thread_keeps_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream for each purpose and device, whatever other threads take meanwhile."""
    monkeypatch.setattr("torch.cuda.Stream", lambda device: Mock(spec=Stream))  # needs no GPU
    monkeypatch.setattr(module, "THREAD", threading.local())
    training, evaluation = own_stream("training", GPU), own_stream("evaluation", GPU)
    other_thread: list[object] = []
    thread = threading.Thread(target=lambda: other_thread.append(own_stream("training", GPU)))
    thread.start()
    thread.join()
    other_device = own_stream("training", torch.device("cuda", 1))
    streams = (training, evaluation, other_device, *other_thread)
    assert len({id(stream) for stream in streams}) == 4
    assert own_stream("training", GPU) is training
    assert own_stream("evaluation", GPU) is evaluation
