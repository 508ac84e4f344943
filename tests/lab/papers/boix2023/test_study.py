import subprocess
import sys

import pytest

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.papers.boix2023 import study, vit_cifar10, vit_cifar100, vit_variants

STAGES, FEW = {"toy-diag", "diag-transformer"}, {"vit-cifar10", "vit-cifar100"}
VITS = FEW | {"vit-imagenet", "vit-variants"}
EXPERIMENTS = {
    **dict.fromkeys(("B1", "B2", "B3"), STAGES),
    **{"B5": {"assumptions"}, "B6": {"toy-full"}, "B7": VITS, "B8": FEW, "B9": VITS},
}


@pytest.mark.parametrize("scale", SCALES)
def test_claims_stand_in_order_and_read_the_experiments_they_speak_of(scale: Scale) -> None:
    declared = study(scale)
    names = [name for claim in EXPERIMENTS for name in (claim, f"{claim}-first")]
    assert [rule.claim for rule in declared.claims] == [*names, "B9-VO"]
    for rule in declared.claims if scale != "smoke" else ():
        names = {key.experiment.removeprefix("boix2023/") for key in rule.needs(declared.keys)}
        assert names == EXPERIMENTS[rule.claim[:2]], rule.claim


def test_each_rule_that_decides_is_changed_and_its_first_version_says_which() -> None:
    rules = {rule.claim: rule for rule in study("paper").claims}
    for claim in EXPERIMENTS:
        assert rules[claim].changed and rules[claim].reason and not rules[claim].headline
        first = rules[f"{claim}-first"]
        assert first.headline == claim and not first.changed and not first.reason
        assert first.sentence == rules[claim].sentence
    assert [claim for claim, rule in rules.items() if rule.ours] == ["B9-VO"]


def test_seeds_that_had_been_seen_are_told_at_scale_paper_alone() -> None:
    seen = dict(study("paper").seen)
    unseen = {f"boix2023/vit-{data}" for data in ("cifar100", "imagenet", "variants")}
    assert seen.pop("boix2023/vit-cifar10") == (0,) and set(seen.values()) == {(0, 1, 2)}
    names = {experiment.name for experiment in study("paper").experiments}
    assert seen.keys() == names - unseen - {"boix2023/vit-cifar10"}
    assert study("small").seen == {}


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
