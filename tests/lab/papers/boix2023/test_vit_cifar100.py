from dataclasses import replace

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.data.images import CIFAR100, CIFAR100_TEST
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10, vit_cifar100
from rankscope.lab.tasks.classification import Classification


def test_paper_scale_is_that_of_cifar10_with_a_hundred_classes() -> None:
    declared = trainings(vit_cifar100.experiment("paper"))
    other = trainings(vit_cifar10.experiment("paper"))
    assert set(declared) == set(other)
    for name, run in declared.items():
        network = VitConfig(classes=100, init_scale=other[name].task.model.init_scale)
        task = Classification(CIFAR100, network, test=CIFAR100_TEST)
        assert run == replace(other[name], task=task)
