from dataclasses import replace

import pytest

from lab.papers.yunis2024.declared import trainings
from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.yunis2024 import mlp
from rankscope.lab.tasks.classification import Classification


@pytest.mark.parametrize("scale", SCALES)
def test_runs_differ_in_their_labels_alone(scale: str) -> None:
    runs = trainings(mlp.experiment(scale))
    true, random = (runs[f"mlp/{labels}-labels"] for labels in ("true", "random"))
    assert isinstance(true.task, Classification) and not true.task.random_labels
    assert replace(true, task=replace(true.task, random_labels=True)) == random


def test_small_learns_as_long_as_the_paper() -> None:
    paper, small = mlp.PAPER.rate_sum, mlp.SMALL.rate_sum
    assert paper == pytest.approx(0.001 * 300 * (45_000 // 128))
    assert 0.5 <= small / paper <= 2


def test_epochs_of_small_are_whole() -> None:
    train, _ = split(1797, seed=0)
    assert len(train) // mlp.SMALL.batch == mlp.SMALL_EPOCH
    taken = sum(mlp.SMALL.snapshots(step) for step in range(mlp.SMALL.steps + 1))
    assert 25 <= taken <= 45
