import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.models.unet import Unet, UnetConfig
from rankscope.matrices import views
from rankscope.pairs import Pair, discover_pairs

SMALL = UnetConfig((8, 8, 16, 16), time=6, groups=4, padding=1)


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(2, 1, size, size, generator=torch.Generator().manual_seed(0))
    return images, torch.tensor([0, 7])


@pytest.mark.parametrize(("size", "padding"), [(28, 0), (8, 1), (16, 1), (13, 1)])
def test_noise_has_the_size_of_the_image(size: int, padding: int) -> None:
    model = UnetConfig((8, 8, 16, 16), time=6, groups=4, padding=padding).build(0)
    assert model(*batch(size)).shape == (2, 1, size, size)


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    """28x28 as in the paper's code, the output padding of each transposed convolution spelt out."""
    config = UnetConfig((8, 8, 16, 16), time=6, groups=4, frequency=0.1)
    model = config.build(0)
    w = dict(model.named_parameters())
    images, times = batch(28)

    def conditioned(x: torch.Tensor, dense: str) -> torch.Tensor:
        shift = time @ w[f"{dense}.weight"].T + w[f"{dense}.bias"]
        x = F.group_norm(x + shift[:, :, None, None], 4)
        return x * x.sigmoid()

    angle = 2 * math.pi * torch.outer(times.float(), model.frequencies)
    time = torch.cat([angle.sin(), angle.cos()], 1) @ w["embed.weight"].T + w["embed.bias"]
    time = time * time.sigmoid()
    h1 = conditioned(F.conv2d(images, w["conv1.weight"]), "dense1")
    h2 = conditioned(F.conv2d(h1, w["conv2.weight"], stride=2), "dense2")
    h3 = conditioned(F.conv2d(h2, w["conv3.weight"], stride=2), "dense3")
    h4 = conditioned(F.conv2d(h3, w["conv4.weight"], stride=2), "dense4")
    h = conditioned(F.conv_transpose2d(h4, w["tconv4.weight"], stride=2), "up_dense4")
    up = {"stride": 2, "output_padding": 1}
    h = conditioned(F.conv_transpose2d(h + h3, w["tconv3.weight"], **up), "up_dense3")
    h = conditioned(F.conv_transpose2d(h + h2, w["tconv2.weight"], **up), "up_dense2")
    want = F.conv_transpose2d(h + h1, w["tconv1.weight"], w["tconv1.bias"])
    torch.testing.assert_close(model(images, times), want, atol=1e-5, rtol=1e-5)


def key(pair: Pair) -> tuple[object, ...]:
    return pair.earlier, pair.later, pair.earlier_cut, pair.later_cut


def test_declared_pairs_differ_from_the_forward_pass_in_skips_and_time_only() -> None:
    """The declaration has skip connections, which discovery takes for residual paths.

    It has neither the first time layer's pairs nor those of the up path's time layers.
    """
    model = SMALL.build(0)
    declared = {key(pair): pair for pair in model.alignment_pairs()}
    discovered = {key(pair) for pair in discover_pairs(model, *batch(8))}
    assert {pair.kind for pair in declared.values()} == {"conv", "time", "skip"}
    assert {pair.kind for ends, pair in declared.items() if ends not in discovered} == {"skip"}
    extra = {(earlier, later) for earlier, later, *_ in discovered - set(declared)}
    dense = {f"dense{i}" for i in range(1, 5)} | {f"up_dense{i}" for i in range(2, 5)}
    want = {("embed", layer) for layer in dense}
    assert extra == want | {(f"up_dense{i}", f"tconv{i - 1}") for i in range(2, 5)}


def test_the_papers_pairs() -> None:
    pairs = [(pair.earlier, pair.later, pair.kind) for pair in SMALL.build(0).alignment_pairs()]
    path = ["conv1", "conv2", "conv3", "conv4", "tconv4", "tconv3", "tconv2", "tconv1"]
    want = [(a, b, "conv") for a, b in pairwise(path)]
    want += [(f"dense{i}", path[i], "time") for i in range(1, 5)]
    want += [(f"{a}{i}", f"tconv{i}", "skip") for i in range(1, 4) for a in ("conv", "dense")]
    assert pairs == want


def test_every_pair_meets_in_one_space() -> None:
    model = SMALL.build(0)
    matrices = views(model)
    for pair in (*model.alignment_pairs(), *model.tap_pairs()):
        outputs = matrices[pair.earlier].W.shape[0]
        assert pair.later_cut is not None and pair.later_cut.size == outputs
        assert math.prod(pair.later_cut.shape) == matrices[pair.later].W.shape[1]


def test_only_the_path_has_other_taps() -> None:
    assert len(SMALL.build(0).tap_pairs()) == 7 * 8


def test_time_features_are_fixed_and_of_the_asked_frequency() -> None:
    model: Unet = UnetConfig(time=2000, frequency=0.5).build(0)
    assert "frequencies" not in dict(model.named_parameters())
    torch.testing.assert_close(model.frequencies.std(), torch.tensor(0.5), rtol=0.1, atol=0.0)
