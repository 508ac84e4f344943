from dataclasses import replace

import pytest
import torch

from lab.papers.yunis2024.declared import trainings
from rankscope.lab.data.splits import split
from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.papers.yunis2024 import unet
from rankscope.lab.tasks.diffusion import Diffusion
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[str, TrainingRun]:
    return trainings(unet.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    declared = runs("paper")
    assert set(declared) == {"unet/decay-0", "unet/decay-0.1", "unet/decay-1", "unet/decay-10"}
    images = 60_000 - 6_000
    for run in declared.values():
        assert run.steps == 100 * (images // 128)
        assert run.optimizer.decay == run.paper_decay
        assert run.decay_sum == pytest.approx(run.paper_decay * 3e-4 * 42_100)


def test_small_decays_as_much_as_the_paper_within_a_factor_of_two() -> None:
    paper, small = runs("paper"), runs("small")
    for name in ("unet/decay-0.1", "unet/decay-1", "unet/decay-10"):
        assert 0.5 <= small[name].decay_sum / paper[name].decay_sum <= 2
    assert small["unet/decay-0"].decay_sum == 0


def test_runs_differ_in_their_decay_alone() -> None:
    for scale in ("paper", "small", "smoke"):
        same = {
            replace(run, paper_decay=None, optimizer=replace(run.optimizer, decay=0.0))
            for run in runs(scale).values()
        }
        assert len(same) == 1


def test_epochs_of_small_are_whole_and_snapshots_few() -> None:
    train, _ = split(1797, seed=0)
    assert len(train) // unet.SMALL.batch == unet.SMALL_EPOCH
    taken = sum(unet.SMALL.snapshots(step) for step in range(unet.SMALL.steps + 1))
    assert 25 <= taken <= 35


@pytest.mark.parametrize("run", [unet.PAPER, unet.SMALL], ids=["paper", "small"])
def test_every_tap_of_every_filter_sees_the_image(run: TrainingRun) -> None:
    """Where a tap meets padding alone, nothing but decay acts on its weights."""
    assert isinstance(run.task, Diffusion)
    narrow = UnetConfig((4, 4, 4, 4), time=4, groups=2, padding=run.task.model.padding)
    assert len(run.task.model.channels) == len(narrow.channels)
    model = narrow.build(0)
    images = torch.rand(2, *run.task.images.shape, generator=torch.Generator().manual_seed(0))
    model(images, torch.tensor([3, 700])).square().sum().backward()
    for name, parameter in model.named_parameters():
        if "conv" in name and parameter.ndim == 4:
            assert parameter.grad is not None
            assert (parameter.grad.abs().amax((0, 1)) > 0).all(), name


def test_eight_pixels_would_be_too_few() -> None:
    """Which is why `small` enlarges the digits: the last level would be one pixel."""
    model = UnetConfig((4, 4, 4, 4), time=4, groups=2, padding=1).build(0)
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model(images, torch.tensor([3, 700])).square().sum().backward()
    gradient = dict(model.named_parameters())["conv4.weight"].grad
    assert gradient is not None
    seen = (gradient.abs().amax((0, 1)) > 0).flatten()
    assert int(seen.sum()) == 4
