import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.tasks.constant import frequency_entropy


def test_no_constant_prediction_is_better() -> None:
    labels = torch.tensor([0, 2, 2, 1, 2, 0, 2])
    best = torch.tensor([2 / 7, 1 / 7, 4 / 7], dtype=torch.float64).log()
    loss = float(F.cross_entropy(best.expand(7, 3), labels))
    assert frequency_entropy(labels) == pytest.approx(loss)
    for nudge in torch.eye(3, dtype=torch.float64):
        assert float(F.cross_entropy((best + 0.1 * nudge).expand(7, 3), labels)) > loss
