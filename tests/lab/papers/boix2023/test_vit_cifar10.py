from dataclasses import replace

import pytest

from lab.papers.boix2023.vit_trainings import trainings
from rankscope.lab.data.images import CIFAR10, CIFAR10_TEST
from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.run import TrainingRun


def runs(scale: Scale) -> dict[str, TrainingRun]:
    return trainings(vit_cifar10.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    run = runs("paper")["vit/scale-1"]
    network = VitConfig(
        image=32, patch=4, depth=6, heads=8, width=512, hidden=512, head_width=128, init_scale=1
    )
    assert run.task == Classification(CIFAR10, network, test=CIFAR10_TEST)
    assert run.optimizer.rate == 1e-4 and run.optimizer.decay == 0 and run.batch == 512
    assert vit_cifar10.EPOCH == 50_000 // 512 and run.steps == 500 * vit_cifar10.EPOCH
    # Up to the peak in 15 epochs, down to its half in the middle of the rest, to 0 at the end.
    assert run.rate(15 * 97 - 1) == run.rate(15 * 97) == 1
    assert run.rate(0) == pytest.approx(1 / (15 * 97))
    assert run.rate((15 + 500) * 97 // 2) == pytest.approx(0.5, abs=1e-3)
    assert run.rate(run.steps) == pytest.approx(0, abs=1e-12)


def test_scales_differ_in_initial_weights_and_when_they_stop() -> None:
    for scale, names in (
        ("paper", {"1": 1.0, "0.3": 0.3, "0.1": 0.1, "0.03": 0.03}),
        ("small", {"1": 1.0, "0.3": 0.3, "0.1": 0.1, "0.03": 0.03}),
        ("smoke", {"1": 1.0, "0.1": 0.1}),
    ):
        declared = runs(scale)
        assert set(declared) == {f"vit/scale-{name}" for name in names}
        default = declared["vit/scale-1"]
        for name, factor in names.items():
            run = declared[f"vit/scale-{name}"]
            assert run.changes and run.task.model.init_scale == factor
            assert (run.stop is None) is (factor == 1)
            model = replace(run.task.model, init_scale=1.0)
            assert replace(run, task=replace(run.task, model=model), stop=None) == default
    assert runs("paper")["vit/scale-0.1"].stop.steps == 50 * 97


def test_snapshots_are_denser_at_first_and_not_too_many() -> None:
    run = runs("paper")["vit/scale-1"]
    taken = [step for step in range(run.steps + 1) if run.snapshots(step)]
    assert taken[0] == 0 and taken[4] < 97 and taken[5:8] == [97, 2 * 97, 3 * 97]
    until_settled = [step for step in taken if 97 <= step <= 60 * 97]
    assert len(until_settled) >= 15 and len(taken) <= 40  # what B7 looks at, what is kept
    small = runs("small")["vit/scale-1"]
    assert 20 <= sum(map(small.snapshots, range(small.steps + 1))) <= 40


def test_epochs_of_small_are_whole() -> None:
    train, _ = split(1797, seed=0)
    assert len(train) // vit_cifar10.SMALL.batch == vit_cifar10.SMALL_EPOCH


@pytest.mark.parametrize("scale", SCALES)
def test_the_network_takes_the_images(scale: Scale) -> None:
    for run in runs(scale).values():
        model, images = run.task.model, run.task.images
        assert (model.channels, *model.pixels) == images.shape and model.classes == images.classes
