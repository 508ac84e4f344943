"""Spearman's rank correlation, exact where there are no ties."""

import numpy as np
from scipy.stats import rankdata


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's correlation of x (n) with every column of y (n, ...).

    A constant column gives 0, a column with NaN gives NaN. Ranks without ties are whole numbers,
    so a correlation of -0.8 is -0.8 to the last digit.
    """
    ranks_x, ranks_y = (rankdata(values, axis=0) - (len(x) + 1) / 2 for values in (x, y))
    together = np.tensordot(ranks_x, ranks_y, axes=(0, 0))
    sizes = np.sqrt(np.square(ranks_x).sum() * np.square(ranks_y).sum(0))
    correlation = together / np.where(sizes > 0, sizes, 1.0)
    return np.where(np.isnan(y).any(0), np.nan, correlation)
