import numpy as np
import pytest
import torch
from torch import nn

from interventions.models import drawn
from rankscope.interventions import perturb, perturb_relative


def test_perturb_adds_noise_of_the_given_size_to_matrices_only() -> None:
    model = drawn(nn.Sequential(nn.Linear(200, 300), nn.BatchNorm1d(300)))
    changed = perturb(model, std=0.5, generator=torch.Generator().manual_seed(1))
    noise = changed[0].weight - model[0].weight
    # 60,000 entries: the sample's standard deviation is within 5 standard errors of 0.5.
    assert noise.std().item() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2 * noise.numel()))
    assert torch.equal(changed[0].bias, model[0].bias)
    assert torch.equal(changed[1].weight, model[1].weight)
    again = perturb(model, std=0.5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(changed[0].weight, again[0].weight)


def test_relative_noise_scales_with_each_matrix() -> None:
    model = drawn(nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 20)))
    with torch.no_grad():
        model[1].weight *= 100
    noisy = [
        perturb_relative(model, ratio=ratio, generator=torch.Generator().manual_seed(1))
        for ratio in (0.1, 0.2)
    ]
    for i in range(2):
        once, twice = (changed[i].weight - model[i].weight for changed in noisy)
        torch.testing.assert_close(twice, 2 * once)
        ratio = once.norm() / model[i].weight.norm()
        assert ratio.item() == pytest.approx(0.1, rel=0.15)


def test_a_weight_that_cannot_be_computed_is_refused() -> None:
    layer = nn.Module()
    layer.base_layer, layer.active_adapters = nn.Linear(3, 3), ["a"]
    layer.ia3_l = nn.ParameterDict({"a": torch.ones(3, 1)})
    with pytest.raises(ValueError, match="base_layer' cannot be replaced: without its adapter"):
        perturb(nn.Sequential(layer), std=0.1, generator=torch.Generator())
