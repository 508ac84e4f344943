"""Arguments that `flow` refuses, and results it keeps when a loss has no minimum."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rankscope.theory import DiagonalNetwork, flow, whitened_network
from theory.cases import LOG10, normal, start, vector


def test_nothing_becomes_active_without_a_drive() -> None:
    path = flow(whitened_network(vector(0, 0)), vector(1, 1), vector(0.5, 0), -8 * LOG10, 100)
    assert path.finished and path.crossings == ()
    assert path.message == "no coordinate became active by time 100"


def test_a_loss_without_minimiser_keeps_what_came_before_and_says_so() -> None:
    def falling(prediction: Tensor, target: Tensor) -> Tensor:
        return -(prediction * target).mean()

    network = DiagonalNetwork(
        lambda x, z: x @ z, falling, (normal(5, 2, seed=0), normal(5, seed=1)), 2
    )
    path = flow(network, vector(1, 1), vector(0.5, 0), -8 * LOG10, 1000.0)
    assert not path.finished and "no finite minimiser" in path.message and "decay" in path.message
    assert path.activations and bool(path.z.isfinite().all()) and len(path.time) > 10


def test_cross_entropy_flows_as_far_as_asked() -> None:
    x, target = vector(1, 2, 3)[:, None] * vector(1.0, -1.0), torch.tensor([0, 0, 0])
    network = DiagonalNetwork(lambda x, z: x * z, F.cross_entropy, (x, target), 2)
    path = flow(network, *start(2), -64 * LOG10, 50.0)
    assert path.finished and len(path.activations) == 2
    assert bool((path.loss.diff() <= 1e-12).all())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"until": 0}, "until"),
        ({"until": math.nan}, "until"),
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"times": vector()}, "times"),
        ({"times": vector(6.0, 7.0)}, "times"),
        ({"times": vector(3.0, 1.0)}, "times"),
        ({"times": vector(-1.0, 1.0)}, "times"),
        ({"u0": vector(1), "v0": vector(0)}, "1 entries, the network 2"),
        ({"log_alpha": -1000 * LOG10, "coordinates": "uv"}, "'uv'.*underflow to 0"),
    ],
)
def test_flows_that_cannot_be_followed_are_refused(options: dict, match: str) -> None:
    u0, v0 = start(2)
    plain = {"u0": u0, "v0": v0, "log_alpha": -8 * LOG10, "until": 5.0}
    with pytest.raises(ValueError, match=match):
        flow(whitened_network(vector(1.0, -0.5)), **(plain | options))
