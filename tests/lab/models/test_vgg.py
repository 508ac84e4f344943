from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.models.vgg import VggConfig
from rankscope.matrices import views

SMALL = VggConfig(channels=1, classes=4, width=0.0625, pools=(1, 2, 3))


def images(size: int, channels: int) -> torch.Tensor:
    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_the_papers_network_has_14_matrices_and_14_7_million_parameters() -> None:
    model = VggConfig().build(0)
    sizes = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    matrices = [(m, n * 9) for n, m in pairwise(sizes)]
    assert [tuple(view.W.shape) for view in views(model).values()] == [*matrices, (10, 512)]
    weights = sum(m * n for m, n in matrices) + 5120
    biases_and_norms = 3 * sum(sizes[1:]) + 10
    assert sum(p.numel() for p in model.parameters()) == weights + biases_and_norms


@pytest.mark.parametrize(("size", "pools"), [(8, (1, 2, 3)), (32, (1, 2, 3, 4, 5)), (16, ())])
def test_pools_fit_the_image(size: int, pools: tuple[int, ...]) -> None:
    config = VggConfig(channels=3, width=0.0625, pools=pools)
    assert config.build(0)(images(size, 3)).shape == (2, 10)


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = SMALL.build(0).eval()
    w = dict(model.named_parameters())
    plan = [1, 2, "M", 3, 4, "M", 5, 6, 7, "M", 8, 9, 10, 11, 12, 13]
    x = images(8, 1)
    for i in plan:
        if i == "M":
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
        else:
            x = F.conv2d(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"], padding=1)
            x = (x / (1 + 1e-5) ** 0.5).clamp(min=0)  # running mean 0 and variance 1 at first
    x = x.mean((2, 3)) @ w["head.weight"].T + w["head.bias"]
    torch.testing.assert_close(model(images(8, 1)), x)


def test_each_pair_of_convolutions_has_eight_other_taps() -> None:
    assert len(SMALL.build(0).tap_pairs()) == 12 * 8
