import math

import pytest

from lab.papers.yunis2024.declared import by_decay
from rankscope.lab.papers.yunis2024 import lm
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[float, TrainingRun]:
    return by_decay(lm.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    declared = runs("paper")
    assert set(declared) == {0, 0.1, 1, 10}
    for decay, run in declared.items():
        assert run.optimizer.decay == decay and run.clip == 1
        # A ramp over 200 steps, then a cosine from 1 to 0.1, of which 2020 of 6460 steps are seen:
        # the integral of (1 + cos) / 2 over an angle x is (x + sin x) / 2.
        angle = math.pi * 2020 / 6460
        seen = 0.1 * 2020 + 0.9 * (angle + math.sin(angle)) / 2 * 6460 / math.pi
        assert run.decay_sum == pytest.approx(decay * 6e-4 * (100 + seen), rel=1e-3)
    taken = [step for step in range(run.steps + 1) if run.snapshots(step)]
    assert taken[0] == 0 and taken[5:] == list(range(222, 2221, 222)) and len(taken) == 15


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
    assert lm.experiment("smoke").seeds == (0,)
