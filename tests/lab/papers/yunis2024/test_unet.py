import pytest
import torch
from torch import Tensor

from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.papers.yunis2024 import unet
from rankscope.lab.training.training_run import TrainingRun


def gradients(shape: tuple[int, ...], padding: int) -> dict[str, Tensor]:
    """Largest gradient of every tap of every filter, (3, 3) each, in a narrow network."""
    model = UnetConfig((4, 4, 4, 4), time=4, groups=2, padding=padding).build(0)
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    model(images, torch.tensor([3, 700])).square().sum().backward()
    return {
        name: parameter.grad.abs().amax((0, 1))
        for name, parameter in model.named_parameters()
        if "conv" in name and parameter.ndim == 4
    }


@pytest.mark.parametrize("run", [unet.PAPER, unet.SMALL], ids=["paper", "small"])
def test_every_tap_of_every_filter_sees_the_image(run: TrainingRun) -> None:
    """Where a tap meets padding alone, nothing but decay acts on its weights."""
    assert len(run.task.model.channels) == 4
    for name, taps in gradients(run.task.images.shape, run.task.model.padding).items():
        assert (taps > 0).all(), name


def test_eight_pixels_would_be_too_few() -> None:
    """Which is why `small` enlarges the digits: the last level would be one pixel."""
    assert int((gradients((1, 8, 8), padding=1)["conv4.weight"] > 0).sum()) == 4
