import math

import pytest

from lab.experiments.declared import by_decay
from rankscope.lab.experiments.yunis2024 import lstm
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[float, TrainingRun]:
    return by_decay(lstm.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    declared = runs("paper")
    assert set(declared) == {0, 0.1, 1, 10}
    assert math.ceil(28_539 / 32) == lstm.EPOCH
    for decay, run in declared.items():
        assert run.optimizer.decay == decay
        # A cosine from 1 to 0 has the mean 1/2.
        assert run.decay_sum == pytest.approx(decay * 3e-4 * 50 * 892 / 2, rel=1e-3)
    taken = [step for step in range(run.steps + 1) if run.snapshots(step)]
    assert taken[0] == 0 and taken[5:7] == [892, 1784] and len(taken) == 55


def test_decays_of_small_act_as_much_as_the_papers() -> None:
    paper, small = runs("paper"), runs("small")
    assert set(paper) == set(small)
    for decay, run in small.items():
        if decay:
            assert 0.5 <= run.decay_sum / paper[decay].decay_sum <= 2
        else:
            assert run.optimizer.decay == 0
        assert 25 <= sum(map(run.snapshots, range(run.steps + 1))) <= 35


def test_smoke_has_two_decays_and_one_seed() -> None:
    assert set(runs("smoke")) == {0.1, 1}
    assert lstm.experiment("smoke").seeds == (0,)
