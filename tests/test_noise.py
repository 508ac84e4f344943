"""The bulk of spectra, against noise of a known deviation."""

import math

import numpy as np
import pytest

from rankscope.noise import bulk_of, largest_of_noise


def singular_values(m: int, n: int, seed: int, *, planted: float = 0.0) -> np.ndarray:
    W = np.random.default_rng(seed).normal(size=(m, n))
    W[0, 0] += planted
    return np.linalg.svd(W, compute_uv=False)


def tails_of(S: np.ndarray) -> np.ndarray:
    return np.append(np.cumsum(S[::-1] ** 2)[::-1], 0.0)


@pytest.mark.parametrize(("m", "n"), [(40, 60), (60, 40), (30, 300)])
def test_one_noise_matrix_in_a_hundred_exceeds_the_largest_value(m: int, n: int) -> None:
    largest = [singular_values(m, n, seed)[0] for seed in range(1000)]
    share = np.mean(np.array(largest) > largest_of_noise(m, n))
    assert share == pytest.approx(0.01, abs=4 * math.sqrt(0.01 * 0.99 / 1000))


def test_a_planted_value_is_no_part_of_the_bulk() -> None:
    S = singular_values(80, 120, seed=0, planted=60.0)
    bulk = bulk_of(S, tails_of(S), 80, 120)
    assert bulk.beyond == 1
    assert bulk.deviation == pytest.approx(1, rel=0.02)


def test_the_largest_values_and_the_energy_of_the_rest_are_enough() -> None:
    S = singular_values(80, 120, seed=0, planted=60.0)
    part = bulk_of(S[:10], tails_of(S)[:11], 80, 120)
    assert part == bulk_of(S, tails_of(S), 80, 120)


def test_a_matrix_without_noise_has_no_bulk() -> None:
    S = np.append([3.0, 2.0], np.zeros(98))
    assert bulk_of(S, tails_of(S), 100, 100) == (0.0, 2)
