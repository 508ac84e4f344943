"""Stage B on losses whose points at rest are known."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.optimize import nnls
from torch import Tensor

from rankscope.theory import DiagonalNetwork, diagonal_head, whitened_network
from rankscope.theory.stationary import START, settle
from theory.cases import correlated, normal, vector

examples = settings(max_examples=6, deadline=None)
seeds = st.integers(0, 999)


def network_of(loss, p: int = 1) -> DiagonalNetwork:
    """Return a network whose loss is L(z) itself."""
    return DiagonalNetwork(
        lambda x, z: loss(z), lambda prediction, _: prediction, (vector(0), vector(0)), p
    )


def valleys(z: Tensor) -> Tensor:
    """Return L with dL/dz = (z - 1)(z - 2)(z - 3): a hill at 2 between two valleys."""
    return (z**4 / 4 - 2 * z**3 + 5.5 * z**2 - 6 * z).sum()


def test_a_whitened_coordinate_rests_at_its_optimum() -> None:
    network = whitened_network(vector(0.7, -1.3))
    rest = settle(network, vector(0.7, 0), vector(1, -1), 1)
    assert rest.converged and rest.support == (0, 1)
    torch.testing.assert_close(rest.z, vector(0.7, -1.3), rtol=1e-12, atol=0)
    torch.testing.assert_close(rest.hessian, torch.eye(2, dtype=torch.float64))


@examples
@given(seeds)
def test_a_convex_loss_rests_at_its_minimum_over_the_orthant(seed: int) -> None:
    """Start with any signs: the winner has the right one, the others are random."""
    network = correlated(4, seed=seed)
    x, target = network.x.numpy(), network.target.numpy()
    winner = int(network.g(torch.zeros(4, dtype=torch.float64)).abs().argmax())
    first = settle(network, vector(0, 0, 0, 0), _one(network, winner), winner)
    drive = network.g(first.z) * (first.z == 0)
    second = int(drive.abs().argmax())
    sign = first.z.sgn() + drive.sgn() * (torch.arange(4) == second)
    rest = settle(network, first.z, sign, second)
    support = np.flatnonzero(sign.numpy())
    signs = sign.numpy()[support]
    expected = np.zeros(4)
    expected[support] = signs * nnls(x[:, support] * signs, target)[0]
    assert rest.converged
    torch.testing.assert_close(rest.z, torch.from_numpy(expected), rtol=1e-8, atol=1e-10)
    assert rest.support == tuple(np.flatnonzero(expected).tolist())


def _one(network: DiagonalNetwork, winner: int) -> Tensor:
    sign = torch.zeros(network.p, dtype=torch.float64)
    sign[winner] = network.g(torch.zeros_like(sign))[winner].sgn()
    return sign


def test_the_flow_stops_in_the_first_valley() -> None:
    network = network_of(valleys)
    rest = settle(network, vector(0), vector(1), 0)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(1), rtol=1e-10, atol=0)
    torch.testing.assert_close(rest.hessian, vector(2)[None])  # (1 - 2)(1 - 3)
    assert network.loss(rest.z) < 0  # a loss may be negative


@pytest.mark.parametrize("unit", [1e-3, 1e-5, 1e3, 1e6])
def test_the_first_valley_is_found_in_any_unit(unit: float) -> None:
    rest = settle(network_of(lambda z: valleys(z / unit)), vector(0), vector(1), 0)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(unit), rtol=1e-9, atol=0)


def test_an_optimum_as_small_as_the_first_step_is_found() -> None:
    """Settle a winner that begins at 1e-4, where it already is at rest."""
    rest = settle(whitened_network(vector(1e-4)), vector(0), vector(1), 0)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(1e-4), rtol=1e-12, atol=0)


def test_a_coordinate_that_is_slow_to_leave_zero_is_waited_for() -> None:
    """Pass near (1, 0), a saddle in u, before the second coordinate grows."""
    network = network_of(lambda z: (z[0] - 1) ** 2 * 50 + (z[1] - 1) ** 2 * 1e-2, 2)
    rest = settle(network, vector(1e-4, 0), vector(1, 1), 1)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(1, 1), rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(2))
def test_the_attention_head_rests_where_an_explicit_flow_ends(seed: int) -> None:
    x = normal(30, 4, 3, seed=seed)
    scores = torch.softmax((x * vector(0.8, -0.6, 0.4)) @ x.mT, -1)
    network = diagonal_head(x, scores @ x * vector(1.0, -0.7, 0.5))
    winner = int(network.g(torch.zeros(6, dtype=torch.float64)).abs().argmax())
    first = settle(network, torch.zeros(6, dtype=torch.float64), _one(network, winner), winner)
    drive = network.g(first.z) * (first.z == 0)
    second = int(drive.abs().argmax())
    sign = first.z.sgn() + drive.sgn() * (torch.arange(6) == second)
    rest = settle(network, first.z, sign, second)
    begin = first.z.abs().sqrt()
    begin[second] = 1e-3

    def slope(time: float, u: np.ndarray) -> np.ndarray:
        u = torch.from_numpy(u)
        return (sign * u * network.g(sign * u * u)).numpy()

    end = solve_ivp(slope, (0, 3000), begin.numpy(), "LSODA", rtol=1e-9, atol=1e-12).y[:, -1]
    assert rest.converged
    torch.testing.assert_close(rest.z, sign * torch.from_numpy(end) ** 2, rtol=1e-5, atol=1e-6)


def test_a_loss_that_falls_forever_is_not_at_rest() -> None:
    rest = settle(network_of(lambda z: -z.sum()), vector(0), vector(1), 0)
    assert not rest.converged
    assert "did not come to rest" in rest.message and "decay" in rest.message


def test_a_flat_direction_is_left_where_the_flow_ends() -> None:
    """Settle L = (z_0 + z_1 - 1)^2 / 2, with a line of minima, from (0.4, small)."""
    network = network_of(lambda z: (z.sum() - 1) ** 2 / 2, 2)
    rest = settle(network, vector(0.4, 0), vector(1, 1), 1)
    assert rest.converged and bool((rest.z > 0).all())
    assert float(rest.z.sum()) == pytest.approx(1, abs=1e-9)
    # d log z_0 = d log z_1 along this flow, so their ratio is that of the start
    assert float(rest.z[1] / rest.z[0]) == pytest.approx(START, rel=1e-3)


def test_the_start_is_left_alone() -> None:
    z, sign = vector(0.7, 0), vector(1, -1)
    settle(whitened_network(vector(0.7, -1.3)), z, sign, 1)
    assert z.tolist() == [0.7, 0] and sign.tolist() == [1, -1]
