"""Vector fields of the flow against each other, Eq. 4 and differences of their slopes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theory import diagonal_head
from rankscope.theory.fields import LogField, WeightField
from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.reduction import Reduction
from theory.cases import LOG10, correlated, normal, start, vector

examples = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 999)
LOG_ALPHA = -2 * LOG10


def head(seed: int) -> DiagonalNetwork:
    return diagonal_head(normal(5, 3, 2, seed=seed), normal(5, 3, 2, seed=seed + 1))


def log_field(network: DiagonalNetwork, log_alpha: float = LOG_ALPHA) -> LogField:
    return LogField(network, Reduction.of(*start(network.p), log_alpha), log_alpha)


def weight_field(network: DiagonalNetwork, log_alpha: float = LOG_ALPHA) -> WeightField:
    return WeightField(network, Reduction.of(*start(network.p), log_alpha), log_alpha)


@examples
@given(seeds)
def test_slope_of_y_is_the_drive_at_z(seed: int) -> None:
    network = head(seed)
    field = log_field(network)
    state = 0.8 * normal(network.p, seed=seed + 2).numpy()
    u, v = field.weights(state[None])
    torch.testing.assert_close(torch.from_numpy(field.slope(0.0, state)), network.g((u * v)[0]))
    torch.testing.assert_close(field.y(state[None])[0], torch.from_numpy(state) * 2 * LOG10)
    assert field.evaluations == 1


@examples
@given(seeds)
def test_slope_of_the_weights_is_equation_4_in_rescaled_time(seed: int) -> None:
    network = head(seed)
    field = weight_field(network)
    state = normal(2 * network.p, seed=seed + 2)
    u, v = state.requires_grad_().chunk(2)
    loss = (network.h(network.x, u * v) - network.target).square().sum(-1).mean() / 2
    (gradient,) = torch.autograd.grad(loss, state)
    slope = torch.from_numpy(field.slope(0.0, state.detach().numpy()))
    torch.testing.assert_close(slope, -2 * LOG10 * gradient)
    assert field.evaluations == 1


@examples
@given(seeds)
def test_the_jacobian_is_the_derivative_of_the_slope(seed: int) -> None:
    network = head(seed)
    logs = log_field(network)
    state = 0.9 * normal(network.p, seed=seed + 2).clamp(-1, 1).numpy()
    exact = logs.jacobian(0.0, state)
    columns = [
        (logs.slope(0.0, state + move) - logs.slope(0.0, state - move)) / 2e-6
        for move in 1e-6 * np.eye(len(state))
    ]
    allowed = 1e-5 + 1e-6 * abs(exact).max()
    np.testing.assert_allclose(exact, np.stack(columns, 1), atol=allowed)


@examples
@given(seeds)
def test_heights_pass_their_levels_where_z_does(seed: int) -> None:
    network = correlated(4, seed=0)
    u, v = normal(2, 4, seed=seed).unbind()
    weights = weight_field(network)
    state = torch.cat([u, v]).numpy()
    above = weights.heights(state) >= weights.levels(0.1)
    assert above.tolist() == ((u * v).abs() >= 0.1).tolist()
    logs = log_field(network)
    state = 1.2 * normal(4, seed=seed).numpy()
    above = logs.heights(state) >= logs.levels(0.1)
    assert above.tolist() == (logs.z(state).abs() >= 0.1).tolist()


@pytest.mark.parametrize("log10_alpha", [-8, -300, -10000])
def test_negligible_coordinates_cost_no_hessian(log10_alpha: int) -> None:
    network = correlated(4, seed=0)
    field = log_field(network, log10_alpha * LOG10)
    assert not field.jacobian(0.0, field.start).any()
    assert field.evaluations == 0
    state = field.start.copy()
    state[2] = float(field.levels(0.5)[2])
    moved = field.jacobian(0.0, state)
    assert field.evaluations == 2  # one column of the Hessian counts as two gradients
    expected = -(network.hessian(vector(0, 0, 0, 0))[:, 2] * 2 * 0.5).numpy()  # dz/dy = 2 z
    np.testing.assert_allclose(moved[:, 2], expected * -log10_alpha * LOG10, rtol=1e-6)
    assert not np.delete(moved, 2, axis=1).any()


def test_the_longest_step_ends_before_the_next_coordinate_is_active() -> None:
    network = correlated(4, seed=0)
    field = log_field(network, -300 * LOG10)
    step = field.longest_step(field.start)
    slope = network.g(torch.zeros(4, dtype=torch.float64)).numpy()
    z = field.z((field.start + step * slope)[None])[0].abs()
    assert 1e-4 < float(z.max()) < 1e-2
    assert math.isinf(weight_field(network).longest_step(weight_field(network).start))
