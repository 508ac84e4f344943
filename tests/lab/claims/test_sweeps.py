"""Rank correlation against scipy's, and runs left out of a sweep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from lab.claims.training_runs import flat, seeds, training_run
from rankscope.lab.claims.sweeps import by_seed, rank_correlation


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=6).filter(lambda y: len(set(y)) > 1))
def test_correlation_is_spearmans_ties_included(y: list[int]) -> None:
    x = np.arange(len(y), dtype=float)
    found = rank_correlation(x, np.array(y, dtype=float))
    assert float(found) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


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


def test_collapsed_runs_are_left_out_with_their_reason() -> None:
    good, dead = training_run(), training_run({"w": flat(10, [10, 10])}, loss=(1.0, 0.97))
    results = {
        "vgg/decay-0.1": seeds(dead, 2),
        "vgg/decay-0": seeds(good, 2),
        "vgg/decay-0.001": {0: good, 1: dead},
        "lm/decay-10": seeds(good, 2),
    }
    first, second = by_seed(results, "vgg")
    assert ([*first.runs], [*second.runs]) == ([0.0, 0.001], [0.0])
    assert first.left_out == (
        "vgg at decay 0.1, seed 0 collapsed: training loss 0.97, a constant predictor's is 1",
    )
    assert len(second.left_out) == 2
    assert first.base == 0.0  # nearer to 0.0001 than 0.001 is
    assert not first.enough
    assert [*by_seed(results, "unet")] == []
