import math

import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.tasks.constant import frequency_entropy


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_entropy_of_equal_and_single_values(dtype: torch.dtype) -> None:
    equal = torch.tensor([3, 5, 9, 200] * 6, dtype=dtype)
    assert frequency_entropy(equal) == pytest.approx(math.log(4))
    assert frequency_entropy(torch.full((8,), 7, dtype=dtype)) == 0


def test_no_constant_prediction_is_better() -> None:
    labels = torch.tensor([0, 2, 2, 1, 2, 0, 2])
    best = torch.tensor([2 / 7, 1 / 7, 4 / 7], dtype=torch.float64).log()
    loss = float(F.cross_entropy(best.expand(7, 3), labels))
    assert frequency_entropy(labels) == pytest.approx(loss)
    for nudge in torch.eye(3, dtype=torch.float64):
        assert float(F.cross_entropy((best + 0.1 * nudge).expand(7, 3), labels)) > loss
