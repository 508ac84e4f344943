import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from rankscope.lab.judging.correlation import rank_correlation


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=6).filter(lambda y: len(set(y)) > 1))
def test_correlation_is_spearmans_ties_included(y: list[int]) -> None:
    x = np.arange(len(y), dtype=float)
    correlation = rank_correlation(x, np.array(y, dtype=float))
    assert float(correlation) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([4.0, 3.0, 2.0, 1.0], -1.0),
        ([3.0, 4.0, 2.0, 1.0], -0.8),  # 1 - 6 * 2 / (4 * 15) with neighbours swapped
        ([1.0, 1.0, 1.0, 1.0], 0.0),
    ],
)
def test_correlation_to_the_last_digit(y: list[float], expected: float) -> None:
    assert rank_correlation(np.array([0, 0.1, 1, 10]), np.array(y)) == expected


def test_columns_are_correlated_apart_and_nan_stays() -> None:
    y = np.array([[1.0, 3.0, 1.0], [2.0, 2.0, np.nan], [3.0, 1.0, 3.0]])
    np.testing.assert_array_equal(
        rank_correlation(np.array([0.0, 1.0, 10.0]), y), [1.0, -1.0, np.nan]
    )
