"""Tables under the column names of WeightWatcher, for scripts that read them.

Values are those of the matrix m x n as a whole, with N = max(m, n) and M = min(m, n).
WeightWatcher cuts a convolution into one matrix per tap, so there its numbers differ.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from rankscope import metrics
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.results import CheckpointScan

# Its names of layer types.
KINDS = {"linear": "dense", "embedding": "embedding", "conv": "conv2d"}


def weightwatcher_table(checkpoints: Iterable[CheckpointScan]) -> pd.DataFrame:
    """Return the columns of WeightWatcher's `analyze` that follow from a spectrum."""
    return pd.DataFrame([row for checkpoint in checkpoints for row in _rows(checkpoint)])


def _rows(checkpoint: CheckpointScan) -> Iterator[dict[str, object]]:
    for number, matrix in enumerate(checkpoint.matrices):
        yield {
            "layer_id": number,
            "name": matrix.name.rpartition(".")[2],
            "longname": matrix.name,
            "layer_type": KINDS.get(matrix.kind, matrix.kind),
            **_values(matrix),
        }


def _values(matrix: MatrixScan) -> dict[str, float | int]:
    S = matrix.spectrum
    N, M = max(matrix.m, matrix.n), min(matrix.m, matrix.n)
    shape: dict[str, float | int] = {
        "M": M,
        "N": N,
        "Q": N / M if M else np.nan,
        "rf": 1,
        "num_evals": len(S),
    }
    if not len(S) or not np.isfinite(S).all() or S[0] == 0:
        return shape
    squares = S**2
    alpha, largest = float(metrics.tail_exponent(S)), float(squares[0])
    rank = int((S[0] * N * np.finfo(S.dtype).eps < S).sum())
    share = squares / squares.sum()
    entropy = float(-(share[share > 0] * np.log(share[share > 0])).sum())
    # Sums of large powers stay finite when the largest is taken out.
    log_alpha_norm = np.log10(((squares / largest) ** alpha).sum()) + alpha * np.log10(largest)
    return shape | {
        "alpha": alpha,
        "alpha_weighted": alpha * np.log10(largest),
        "entropy": entropy / np.log(rank) if rank > 1 else np.nan,
        "lambda_max": largest,
        "log_alpha_norm": float(log_alpha_norm),
        "log_norm": float(np.log10(squares.sum())),
        "log_spectral_norm": float(np.log10(largest)),
        "matrix_rank": rank,
        "norm": float(squares.sum()),
        "rank_loss": len(S) - rank,
        "spectral_norm": largest,
        "stable_rank": float(squares.sum() / largest),
        "sv_max": float(S[0]),
        "sv_min": float(S[-1]),
    }
