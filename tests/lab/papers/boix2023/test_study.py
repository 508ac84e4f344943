import subprocess
import sys

import pytest

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.papers.boix2023 import study, vit_cifar10, vit_cifar100, vit_variants

STAGES, FEW = {"toy-diag", "diag-transformer"}, {"vit-cifar10", "vit-cifar100"}
VITS = FEW | {"vit-imagenet", "vit-variants"}
EXPERIMENTS_BY_CLAIM = {
    **{claim: STAGES for claim in ("B1", "B1-saturated", "B2", "B2-clear", "B3", "B3-clear")},
    **{"B4": {"toy-diag"}, "B5": {"assumptions"}, "B5-limit": {"assumptions"}, "B6": {"toy-full"}},
    **{"B7": VITS, "B8": FEW, "B8-settled": FEW, "B9": VITS},
}


@pytest.mark.parametrize("scale", SCALES)
def test_claims_stand_in_order_and_read_the_experiments_they_speak_of(scale: Scale) -> None:
    declared = study(scale)
    assert [rule.claim for rule in declared.claims] == list(EXPERIMENTS_BY_CLAIM)
    for rule in declared.claims if scale != "smoke" else ():
        names = {key.experiment.removeprefix("boix2023/") for key in rule.needs(declared.keys)}
        assert names == EXPERIMENTS_BY_CLAIM[rule.claim], rule.claim


def test_claims_and_experiments_import_no_plotting() -> None:
    code = "import rankscope.lab.papers.boix2023, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("module", [vit_cifar10, vit_cifar100, vit_variants])
def test_networks_take_the_images(module, scale: Scale) -> None:
    for run in trainings(module.experiment(scale)).values():
        model, images = run.task.model, run.task.images
        assert (model.channels, *model.pixels) == images.shape and model.classes == images.classes


@pytest.mark.parametrize(("module", "images"), [(vit_cifar10, 1797), (vit_cifar100, 1797 // 2)])
def test_epochs_of_small_are_whole(module, images: int) -> None:
    train, _ = split(images, seed=0)
    assert len(train) // module.SMALL.batch == module.SMALL_EPOCH
