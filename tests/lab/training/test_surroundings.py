from collections.abc import Iterator

import pytest
import torch

from rankscope.lab.training.surroundings import surroundings


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def smallest_is_kept() -> bool:
    """Whether a number below the normal range of float32 survives a product."""
    return bool(torch.tensor([1e-30]) * 1e-10 > 0)


def test_on_the_cpu_it_is_one_thread_without_denormal_numbers() -> None:
    with surroundings(torch.device("cpu")):
        assert torch.get_num_threads() == 1 and not smallest_is_kept()
    assert torch.get_num_threads() == 2 and smallest_is_kept()


def test_what_was_there_comes_back_after_a_failure() -> None:
    with pytest.raises(KeyError), surroundings(torch.device("cpu")):
        raise KeyError
    assert torch.get_num_threads() == 2 and smallest_is_kept()
