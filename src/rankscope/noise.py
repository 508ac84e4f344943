"""Singular values that random noise would have: the Marchenko-Pastur law of a spectrum's bulk."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# 99% quantile of the Tracy-Widom law of real matrices: johnstone2001, Table 1.
TRACY_WIDOM_99 = 2.0234


class Bulk(NamedTuple):
    """Part of a spectrum that looks like independent random entries.

    deviation: standard deviation of these entries.
    beyond: number of values that are larger than chance allows, and no part of the bulk.
    """

    deviation: float
    beyond: int


def bulk_of(S: Float[np.ndarray, " k"], tails: Float[np.ndarray, " ranks"], m: int, n: int) -> Bulk:
    """Return the bulk of an m x n matrix, or deviation 0 if no value looks like noise.

    A value counts as beyond it if noise has one as large in less than one of a hundred matrices.
    Values are taken out of the bulk, with as many rows and columns, until their number no longer
    changes.

    S: the largest values, in any order.
    tails: energy without the r largest values, for r = 0, 1, ... k.
    """
    beyond = 0
    while (rows := m - beyond) > 0 and (columns := n - beyond) > 0:
        deviation = math.sqrt(tails[beyond] / (rows * columns))
        count = int((deviation * largest_of_noise(rows, columns) < S).sum())
        if count <= beyond:
            return Bulk(deviation, beyond)
        beyond = count
    return Bulk(0.0, beyond)


def largest_of_noise(m: int, n: int) -> float:
    """99th percentile of the largest singular value of m x n entries of deviation 1.

    The edge of the law is sqrt(m) + sqrt(n). By chance the largest value exceeds it: johnstone2001.
    """
    rows, columns = math.sqrt(m), math.sqrt(max(n - 1, 1))
    width = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3)
    return math.sqrt((rows + columns) ** 2 + TRACY_WIDOM_99 * width)
