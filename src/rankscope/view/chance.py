"""Singular values of random matrices: the law of Marchenko and Pastur (1967)."""

import math

import numpy as np

GRID = 4096


def edges(m: int, n: int, frobenius: float) -> tuple[float, float]:
    """Return the least and largest singular value of a large random m x n matrix.

    Its entries are independent with mean 0 and variance frobenius^2 / (m n): the matrix has that
    Frobenius norm, and singular values from s |sqrt(m) - sqrt(n)| to s (sqrt(m) + sqrt(n)).
    """
    deviation = frobenius / math.sqrt(m * n)
    return (
        deviation * abs(math.sqrt(m) - math.sqrt(n)),
        deviation * (math.sqrt(m) + math.sqrt(n)),
    )


def expected_values(m: int, n: int, frobenius: float) -> np.ndarray:
    """Return the singular values to expect of that matrix, largest first: quantiles of the law."""
    k = min(m, n)
    low, high = edges(m, n, frobenius)
    if not high > 0 or not k:
        return np.zeros(k)
    # The density of s is sqrt((high^2 - s^2)(s^2 - low^2)) / s, up to a factor. With
    # s^2 = middle + half cos(angle) the square roots at both ends leave the integral.
    angle = (np.arange(GRID) + 0.5) * math.pi / GRID
    middle, half = (high**2 + low**2) / 2, (high**2 - low**2) / 2
    squares = middle + half * np.cos(angle)  # falling
    mass = np.sin(angle) ** 2 / squares
    share = np.cumsum(mass) / mass.sum()
    wanted = (np.arange(k) + 0.5) / k
    values = np.sqrt(np.interp(wanted, share - 0.5 * mass / mass.sum(), squares))
    return values * (frobenius / float(np.linalg.norm(values)))  # the law is that of large matrices
