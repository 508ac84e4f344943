"""The law of Marchenko and Pastur against random matrices."""

import numpy as np
import pytest

from rankscope.view.chance import edges, expected_values


@pytest.mark.parametrize(("m", "n"), [(300, 300), (200, 600), (700, 100)])
def test_random_matrices_have_the_expected_singular_values(m: int, n: int) -> None:
    W = 0.02 * np.random.default_rng(0).standard_normal((m, n))
    S, norm = np.linalg.svd(W, compute_uv=False), float(np.linalg.norm(W))
    np.testing.assert_allclose(expected_values(m, n, norm), S, atol=0.02 * S[0])
    low, high = edges(m, n, norm)
    assert S[0] == pytest.approx(high, rel=0.03)
    assert S[-1] == pytest.approx(low, abs=0.03 * high)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (50, 20)])
def test_the_expected_values_have_the_norm(m: int, n: int) -> None:
    values = expected_values(m, n, 3.0)
    assert len(values) == min(m, n)
    assert (np.diff(values) <= 0).all()
    assert np.linalg.norm(values) == pytest.approx(3.0, rel=0.02)


def test_the_zero_matrix_stays_zero() -> None:
    assert expected_values(4, 5, 0.0).tolist() == [0, 0, 0, 0]
