import math

import pytest

from lab.papers.yunis2024.declared import by_decay
from rankscope.lab.models.lstm import BiLstmConfig
from rankscope.lab.papers.yunis2024 import lstm
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[float, TrainingRun]:
    return by_decay(lstm.experiment(scale))


def test_the_published_run_is_the_papers() -> None:
    run = lstm.PUBLISHED
    assert run.steps == 50 * math.ceil(28_539 / 32) and run.batch == 32
    # A cosine from 1 to 0 has the mean 1/2.
    assert run.rate_sum == pytest.approx(3e-4 * 50 * 892 / 2, rel=1e-3)


def test_paper_scale_has_the_papers_decays_and_fractions_of_training() -> None:
    declared = runs("paper")
    assert set(declared) == {0, 0.1, 1, 10}
    published = snapshots(lstm.PUBLISHED)
    for decay, run in declared.items():
        assert run.optimizer.decay == decay and run.steps >= 5000
        assert run.task.model == lstm.PUBLISHED.task.model == BiLstmConfig()
        # The four inside the first epoch fall between steps where an epoch has few.
        assert snapshots(run) == pytest.approx(published, abs=1 / run.steps)
    assert len(published) == 55


def snapshots(run: TrainingRun) -> list[float]:
    """As fractions of training."""
    return [step / run.steps for step in range(run.steps + 1) if run.snapshots(step)]


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_decays_act_as_much_as_the_papers(scale: str) -> None:
    for decay, run in runs(scale).items():
        if decay:
            assert 0.5 <= run.decay_sum / (decay * lstm.PUBLISHED.rate_sum) <= 2
        else:
            assert run.optimizer.decay == 0


def test_small_takes_half_as_many_snapshots() -> None:
    assert {decay for decay in runs("small")} == {0, 0.1, 1, 10}
    for run in runs("small").values():
        assert 25 <= len(snapshots(run)) <= 35


def test_smoke_has_two_decays_and_one_seed() -> None:
    assert set(runs("smoke")) == {0.1, 1}
    assert lstm.experiment("smoke").seeds == (0,)
