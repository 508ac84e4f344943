import pytest

from lab.papers.yunis2024.declared import trainings
from rankscope.lab.data.splits import split
from rankscope.lab.papers.yunis2024 import vgg
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[str, TrainingRun]:
    return trainings(vgg.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    declared = runs("paper")
    assert set(declared) == {
        f"vgg/decay-{decay}" for decay in ("0", "0.0001", "0.001", "0.01", "0.1")
    }
    for run in declared.values():
        assert run.optimizer.decay == run.paper_decay
        # 82 epochs at 0.1, 38 at 0.01, 40 at 0.001, 4 at 0.0001, of 351 steps each.
        epochs = 82 * 0.1 + 38 * 0.01 + 40 * 0.001 + 4 * 0.0001
        assert run.decay_sum == pytest.approx(351 * epochs * run.paper_decay)
    images = 50_000 - 5_000
    assert images // 128 == vgg.EPOCH


def test_decays_of_small_act_as_much_as_the_papers() -> None:
    paper, small = runs("paper"), runs("small")
    assert set(paper) == set(small)
    for name, run in small.items():
        assert run.paper_decay == paper[name].paper_decay
        if run.paper_decay:
            assert 0.5 <= run.decay_sum / paper[name].decay_sum <= 2
        else:
            assert run.optimizer.decay == 0


def test_epochs_of_small_are_whole() -> None:
    train, _ = split(1797, seed=0)
    assert len(train) // vgg.SMALL.batch == vgg.SMALL_EPOCH
    taken = sum(vgg.SMALL.snapshots(step) for step in range(vgg.SMALL.steps + 1))
    assert 25 <= taken <= 45
