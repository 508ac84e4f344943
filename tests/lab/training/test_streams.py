import threading
from unittest.mock import Mock

import pytest
import torch

from rankscope.lab.training import streams
from rankscope.lab.training.streams import own_stream

GPU, Stream = torch.device("cuda", 0), torch.cuda.Stream


def test_a_thread_keeps_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each purpose and device, whatever other threads take meanwhile."""
    monkeypatch.setattr("torch.cuda.Stream", lambda device: Mock(spec=Stream))  # needs no GPU
    monkeypatch.setattr(streams, "OWN", threading.local())
    mine, other = own_stream("training", GPU), own_stream("evaluation", GPU)
    theirs: list[object] = []
    thread = threading.Thread(target=lambda: theirs.append(own_stream("training", GPU)))
    thread.start()
    thread.join()
    elsewhere = own_stream("training", torch.device("cuda", 1))
    assert len({id(each) for each in (mine, other, elsewhere, *theirs)}) == 4
    assert own_stream("training", GPU) is mine and own_stream("evaluation", GPU) is other
