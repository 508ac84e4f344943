from dataclasses import replace

import pytest

from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.yunis2024 import mlp


@pytest.mark.parametrize("scale", SCALES)
def test_runs_differ_in_their_labels_alone(scale: str) -> None:
    runs = {key.variant["labels"]: run for key, run in mlp.experiment(scale).runs.items()}
    assert not runs["true"].task.random_labels
    random = replace(runs["true"].task, random_labels=True)
    assert replace(runs["true"], task=random) == runs["random"]


def test_small_learns_as_long_as_the_paper() -> None:
    assert mlp.PAPER.rate_sum == pytest.approx(0.001 * 300 * (45_000 // 128))
    assert 0.5 <= mlp.SMALL.rate_sum / mlp.PAPER.rate_sum <= 2
