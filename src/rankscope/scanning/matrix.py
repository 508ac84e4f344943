"""One matrix of one checkpoint, measured."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class MatrixScan:
    """One matrix of one checkpoint.

    S: all singular values, or the leading ones; empty if only norms were asked for.
    norm: Frobenius norm, which does not need S.
    change: singular values of W - W0; None without a base that has the matrix.
    change_norm: Frobenius norm of W - W0.
    note: what to know about the change, such as that only shared rows were compared.
    """

    name: str
    kind: str
    m: int
    n: int
    dtype: str
    S: np.ndarray
    norm: float
    change: np.ndarray | None = None
    change_norm: float = np.nan
    note: str = ""

    @property
    def spectrum(self) -> np.ndarray:
        """Singular values that the table is about: those of the change if there is a base."""
        return self.S if self.change is None else self.change
