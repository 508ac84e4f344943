import pytest

from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.yunis2024 import grok


@pytest.mark.parametrize("scale", SCALES)
def test_batches_are_full(scale: str) -> None:
    for run in grok.experiment(scale).runs.values():
        assert run.batch == run.task.samples == int(run.task.train_share * run.task.model.p**2)
