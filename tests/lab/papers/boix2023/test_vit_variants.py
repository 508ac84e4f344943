from dataclasses import replace

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.papers.boix2023 import vit_cifar10, vit_variants
from rankscope.lab.tasks.augmentation import CropFlip


def test_each_variant_differs_from_the_papers_network_in_one_thing() -> None:
    declared = trainings(vit_variants.experiment("paper"))
    other = trainings(vit_cifar10.experiment("paper"))
    for name in ("scale-1", "scale-0.1"):
        plain = other[f"vit/{name}"]
        task = plain.task
        expected = {
            "depth-3": replace(task, model=replace(task.model, depth=3)),
            "depth-12": replace(task, model=replace(task.model, depth=12)),
            "narrow": replace(task, model=replace(task.model, width=256, hidden=256)),
            "augmented": replace(task, augmentation=CropFlip(padding=4)),
        }
        for variant, changed in expected.items():
            assert declared.pop(f"{variant}/{name}") == replace(plain, task=changed)
    assert not declared


def test_small_has_the_same_networks_and_smoke_some_of_them() -> None:
    names = set(trainings(vit_variants.experiment("paper")))
    declared = trainings(vit_variants.experiment("small"))
    assert set(declared) == names > set(trainings(vit_variants.experiment("smoke")))
    depths = {name.split("/")[0]: run.task.model.depth for name, run in declared.items()}
    assert depths == {"depth-3": 3, "depth-12": 12, "narrow": 6, "augmented": 6}
    narrow = declared["narrow/scale-1"].task.model
    assert narrow.width == narrow.hidden == vit_cifar10.SMALL_VIT.width // 2
