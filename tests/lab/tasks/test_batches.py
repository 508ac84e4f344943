import pytest
import torch

from rankscope.lab.tasks.batches import batches


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(7, 3, [3, 2, 2]), (6, 3, [3, 3]), (2, 9, [2])]
)
def test_rows_stay_together_and_none_is_lost(count: int, most: int, sizes: list[int]) -> None:
    parts = list(batches((torch.arange(count), torch.arange(count)[:, None] * 10), most=most))
    assert [len(first) for first, _ in parts] == sizes
    assert torch.cat([first for first, _ in parts]).tolist() == list(range(count))
    assert all(torch.equal(second, first[:, None] * 10) for first, second in parts)
