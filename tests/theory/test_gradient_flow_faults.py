"""Arguments that `flow` refuses, and results it keeps when a loss has no minimum."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rankscope.theory import DiagonalNetwork, flow, whitened_network
from theory.cases import LOG10, normal, start, vector


def whitened_flow(log10_alpha: int, **options):
    return flow(whitened_network(vector(1.0, -0.5)), *start(2), log10_alpha * LOG10, 5.0, **options)


@pytest.mark.parametrize("times", [vector(), vector(6.0, 7.0), vector(3.0, 1.0), vector(-1.0, 1.0)])
def test_times_that_cannot_be_recorded_are_refused(times: Tensor) -> None:
    """Times are empty, all after the end, out of order, or before the start."""
    with pytest.raises(ValueError, match="times"):
        whitened_flow(-8, times=times)


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


@pytest.mark.parametrize("log_alpha", [0.0, 1.0, math.nan, -math.inf])
def test_an_alpha_outside_0_to_1_is_refused(log_alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        flow(whitened_network(vector(1.0)), vector(1.0), vector(0.0), log_alpha, 1.0)


@pytest.mark.parametrize("until", [0.0, -1.0, math.nan])
def test_an_end_before_the_start_is_refused(until: float) -> None:
    with pytest.raises(ValueError, match="until"):
        flow(whitened_network(vector(1.0)), vector(1.0), vector(0.0), -1.0, until)


def test_starts_that_do_not_fit_are_refused() -> None:
    network = whitened_network(vector(1.0, 2.0))
    with pytest.raises(ValueError, match="1 entries, the network 2"):
        flow(network, vector(1.0), vector(0.0), -1.0, 1.0)
    with pytest.raises(ValueError, match=r"Assumption 4\.2"):
        flow(network, vector(1.0, 2.0), vector(0.0, -2.0), -1.0, 1.0)


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan])
def test_a_threshold_that_is_not_above_zero_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        whitened_flow(-8, threshold=threshold)


def test_weights_that_would_underflow_are_refused() -> None:
    """Refuse alpha = 1e-1000, which is 0 in float64: (u, v) would never move."""
    with pytest.raises(ValueError, match="uv"):
        whitened_flow(-1000, coordinates="uv")
