"""One matrix of one checkpoint, measured."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class MatrixScan:
    """One matrix of one checkpoint.

    S: all singular values, or the leading ones; empty if only norms were asked for.
    norm: Frobenius norm, which does not need S.
    change: singular values of W - W0; None without a base, or if the base lacks the matrix.
    change_norm: Frobenius norm of W - W0.
    note: what to know about the change, such as that only shared rows were compared.
    compared: whether the scan has a base, so that the table is about changes.
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
    compared: bool = False

    @property
    def spectrum(self) -> np.ndarray:
        """Singular values that the table is about: of the change if there is a base.

        Empty if the base lacks the matrix.
        """
        if not self.compared:
            return self.S
        return np.empty(0) if self.change is None else self.change

    @property
    def size(self) -> float:
        """Frobenius norm of what the table is about."""
        return self.change_norm if self.compared else self.norm
