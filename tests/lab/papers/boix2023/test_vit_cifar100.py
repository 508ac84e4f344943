from dataclasses import replace

import pytest

from lab.papers.boix2023.vit_trainings import trainings
from rankscope.lab.data.images import CIFAR100, CIFAR100_TEST
from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10, vit_cifar100
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.run import TrainingRun


def runs(scale: Scale) -> dict[str, TrainingRun]:
    return trainings(vit_cifar100.experiment(scale))


def test_paper_scale_is_that_of_cifar10_with_a_hundred_classes() -> None:
    declared, other = runs("paper"), trainings(vit_cifar10.experiment("paper"))
    assert set(declared) == set(other)
    for name, run in declared.items():
        network = VitConfig(classes=100, init_scale=other[name].task.model.init_scale)
        task = Classification(CIFAR100, network, test=CIFAR100_TEST)
        assert run == replace(other[name], task=task)


def test_epochs_of_small_are_whole() -> None:
    train, _ = split(1797 // 2, seed=0)
    assert len(train) // vit_cifar100.SMALL.batch == vit_cifar100.SMALL_EPOCH


@pytest.mark.parametrize("scale", SCALES)
def test_the_network_takes_the_images(scale: Scale) -> None:
    for run in runs(scale).values():
        model, images = run.task.model, run.task.images
        assert (model.channels, *model.pixels) == images.shape and model.classes == images.classes
