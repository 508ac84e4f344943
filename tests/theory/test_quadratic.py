"""The active-set method against scipy's non-negative least squares and against the flow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from rankscope.theory import DiagonalNetwork, incremental, linear_network, square_error
from rankscope.theory.quadratic import SMALL, Factor, constrained_minimum
from theory.cases import correlated, normal, vector


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 8))
def test_the_minimum_is_that_of_non_negative_least_squares(seed: int, p: int) -> None:
    x, target = normal(2 * p, p, seed=seed), normal(2 * p, seed=seed + 1)
    sign = normal(p, seed=seed + 2).sgn()
    start = torch.zeros(p, dtype=torch.float64)
    minimum = constrained_minimum(linear_network(x, target), start, sign)
    assert minimum is not None
    expected = sign.numpy() * nnls((x * sign).numpy(), target.numpy())[0]
    np.testing.assert_allclose(minimum[0].numpy(), expected, rtol=1e-9, atol=1e-12)
    assert bool((start == 0).all())


def test_coordinates_without_a_sign_stay_zero() -> None:
    minimum = constrained_minimum(correlated(3, seed=1), vector(0, 0, 0), vector(0, 1, 0))
    assert minimum is not None and minimum[0][[0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize("target", [1.0, 0.0])
def test_without_a_unique_minimum_the_flow_decides(target: float) -> None:
    """Two equal columns have a line of minima; without a target no drive holds them at zero."""
    x = torch.ones(4, 2, dtype=torch.float64)
    network = linear_network(x, target * torch.ones(4, dtype=torch.float64))
    assert constrained_minimum(network, vector(0, 0), vector(1, 1)) is None


@pytest.mark.parametrize("seed", range(4))
def test_stages_are_those_of_the_flow(seed: int) -> None:
    network = correlated(6, seed=seed)
    flowing = DiagonalNetwork(network.h, square_error, (network.x, network.target), 6, decay=0.01)
    quick = DiagonalNetwork(
        network.h,
        square_error,
        (network.x, network.target),
        6,
        decay=0.01,
        hessian=network.constant_hessian,
    )
    assert flowing.constant_hessian is None
    torch.testing.assert_close(quick.hessian(vector(*range(6))), flowing.hessian(vector(*range(6))))
    for stage, other in zip(incremental(quick, 30), incremental(flowing, 30), strict=True):
        assert (stage.winner, stage.support, stage.left) == (
            other.winner,
            other.support,
            other.left,
        )
        assert stage.time == pytest.approx(other.time, rel=1e-8)
        torch.testing.assert_close(stage.z, other.z, rtol=1e-8, atol=1e-10)
        assert stage.certificate.hessian_u == pytest.approx(other.certificate.hessian_u, rel=1e-6)
        assert stage.certificate.hessian_z == pytest.approx(other.certificate.hessian_z, rel=1e-6)


@pytest.mark.parametrize("size", [5, SMALL + 30])
def test_a_factor_solves_and_knows_the_smallest_eigenvalue(size: int) -> None:
    root = normal(2 * size, size, seed=0) * torch.logspace(-3, 3, size, dtype=torch.float64)
    matrix, scale = root.mT @ root, normal(size, seed=1).abs() + 0.1
    factor = Factor.of(matrix)
    assert factor is not None
    right = normal(size, seed=2)
    torch.testing.assert_close(matrix @ factor.solve(right), right)
    scaled = scale[:, None] * matrix * scale
    for known, lanczos in ((matrix, factor), (scaled, factor.scaled(scale))):
        smallest = 1 / torch.linalg.eigvalsh(torch.linalg.inv(known))[-1]
        assert lanczos.smallest_eigenvalue() == pytest.approx(float(smallest), rel=1e-6)


@pytest.mark.parametrize("diagonal", [(1.0, 0.0), (1.0, -1.0)])
def test_a_matrix_that_is_not_definite_has_no_factor(diagonal: tuple[float, ...]) -> None:
    assert Factor.of(torch.diag(vector(*diagonal))) is None
    assert Factor.of(torch.ones(2, 2, dtype=torch.float64)) is None
