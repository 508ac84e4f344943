"""Stage B on losses whose points at rest are known."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from rankscope.theory import whitened_network
from rankscope.theory.stationary import START, settle
from theory.cases import attention_task, loss_network, vector


def valleys(z: Tensor) -> Tensor:
    """Return L with dL/dz = (z - 1)(z - 2)(z - 3): a hill at 2 between two valleys."""
    return (z**4 / 4 - 2 * z**3 + 5.5 * z**2 - 6 * z).sum()


def test_a_whitened_coordinate_rests_at_its_optimum() -> None:
    z, sign = vector(0.7, 0), vector(1, -1)
    rest = settle(whitened_network(vector(0.7, -1.3)), z, sign, 1)
    assert rest.converged and rest.support == (0, 1)
    assert z.tolist() == [0.7, 0] and sign.tolist() == [1, -1]
    torch.testing.assert_close(rest.z, vector(0.7, -1.3), rtol=1e-12, atol=0)
    torch.testing.assert_close(rest.hessian, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-5, 1e3, 1e6])
def test_the_flow_stops_in_the_first_valley_in_any_unit(unit: float) -> None:
    network = loss_network(lambda z: valleys(z / unit))
    rest = settle(network, vector(0), vector(1), 0)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(unit), rtol=1e-9, atol=0)
    torch.testing.assert_close(rest.hessian * unit**2, vector(2)[None])  # (1 - 2)(1 - 3)
    assert network.loss(rest.z) < 0  # a loss may be negative


def test_a_coordinate_that_is_slow_to_leave_zero_is_waited_for() -> None:
    """Pass near (1, 0), a saddle in u, before the second coordinate grows."""
    network = loss_network(lambda z: (z[0] - 1) ** 2 * 50 + (z[1] - 1) ** 2 * 1e-2, 2)
    rest = settle(network, vector(1e-4, 0), vector(1, 1), 1)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(1, 1), rtol=1e-9, atol=0)


def test_a_narrow_in_which_the_flow_almost_rests_is_passed() -> None:
    """Settle L with -dL/dz = ((z - 1)^2 + 0.01)(3 - z): slow at 1, where L curves down beyond."""
    network = loss_network(lambda z: (z**4 / 4 - 5 * z**3 / 3 + 3.505 * z**2 - 3.03 * z).sum())
    rest = settle(network, vector(0), vector(1), 0)
    assert rest.converged
    torch.testing.assert_close(rest.z, vector(3), rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(2))
def test_the_attention_head_rests_where_an_explicit_flow_ends(seed: int) -> None:
    network, z = attention_task(seed, samples=30), torch.zeros(6, dtype=torch.float64)
    for _ in range(2):
        before, drive = z, network.g(z) * (z == 0)
        winner = int(drive.abs().argmax())
        sign = z.sgn() + drive.sgn() * (torch.arange(6) == winner)
        rest = settle(network, z, sign, winner)
        z = rest.z
    begin = before.abs().sqrt()
    begin[winner] = 1e-3

    def slope(time: float, u: np.ndarray) -> np.ndarray:
        u = torch.from_numpy(u)
        return (sign * u * network.g(sign * u * u)).numpy()

    end = solve_ivp(slope, (0, 3000), begin.numpy(), "LSODA", rtol=1e-9, atol=1e-12).y[:, -1]
    assert rest.converged
    torch.testing.assert_close(rest.z, sign * torch.from_numpy(end) ** 2, rtol=1e-5, atol=1e-6)


def test_a_loss_that_falls_forever_is_not_at_rest() -> None:
    rest = settle(loss_network(lambda z: -z.sum()), vector(0), vector(1), 0)
    assert not rest.converged
    assert "did not come to rest" in rest.message and "decay" in rest.message


def test_a_flat_direction_is_left_where_the_flow_ends() -> None:
    """Settle L = (z_0 + z_1 - 1)^2 / 2, with a line of minima, from (0.4, small)."""
    network = loss_network(lambda z: (z.sum() - 1) ** 2 / 2, 2)
    rest = settle(network, vector(0.4, 0), vector(1, 1), 1)
    assert rest.converged and bool((rest.z > 0).all())
    assert float(rest.z.sum()) == pytest.approx(1, abs=1e-9)
    # d log z_0 = d log z_1 along this flow, so their ratio is that of the start
    assert float(rest.z[1] / rest.z[0]) == pytest.approx(START, rel=1e-3)
