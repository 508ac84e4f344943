"""Inner basis in which the small directions of a product of factors survive rounding.

left @ right.mT and its gradient flow do not change when both factors are rotated, left R and
right R. In a random basis every column holds a part of every direction, and a direction 1e16 times
smaller than the largest is lost to rounding. With one direction per column, each column is rounded
relative to its own size. Gradients act on columns one by one, so no column disturbs another.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def overlap(factors: Float[Tensor, "*batch rows r"]) -> float:
    """Return the largest |cosine| between two columns; 0 when all are orthogonal."""
    size = torch.linalg.vector_norm(factors, dim=-2, keepdim=True)
    unit = torch.where(size > 0, factors / size, 0.0)
    cosines = (unit.mT @ unit).abs()
    cosines.diagonal(dim1=-2, dim2=-1).zero_()
    return float(cosines.max())


def separated(
    factors: Float[Tensor, "rows r"], *, tolerance: float = 1e-8, sweeps: int = 30
) -> Float[Tensor, "rows r"]:
    """Return factors @ R with a rotation R that makes the columns orthogonal.

    This is Jacobi's one-sided method. Each rotation turns two columns, by a tiny angle where their
    sizes differ much, so all columns keep their relative accuracy. Each sweep meets all pairs in
    the order of a round-robin tournament and turns half the columns at once.
    """
    columns = factors.numpy().T.copy()  # (r, rows)
    rounds = _tournament(len(columns))
    for _ in range(sweeps):
        worst = max((_turn(columns, a, b) for a, b in rounds), default=0.0)
        if worst <= tolerance:
            break
    return torch.from_numpy(columns.T.copy())


def _turn(columns: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Make column a[i] orthogonal to b[i] for every i, in place; return the largest |cosine|."""
    x, y = columns[a], columns[b]
    size_x, size_y = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    live = (size_x > 0) & (size_y > 0)
    size_x, size_y = np.where(live, size_x, 1.0), np.where(live, size_y, 1.0)
    cosine = np.where(live, ((x / size_x[:, None]) * (y / size_y[:, None])).sum(1), 0.0)
    ratio = size_y / size_x
    # Of the two angles with tan(2 angle) = 2 x.y / (|y|^2 - |x|^2), take the smaller.
    twist = (ratio - 1 / ratio) / 2
    sign = np.where(twist < 0, -1.0, 1.0)
    tangent = sign * cosine / (np.abs(twist) + np.hypot(cosine, twist) + (cosine == 0))
    c = (1 / np.hypot(1.0, tangent))[:, None]
    s = c * tangent[:, None]
    columns[a], columns[b] = c * x - s * y, s * x + c * y
    return float(np.abs(cosine).max())


def _tournament(r: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return rounds of disjoint pairs in which each of r players meets each other once."""
    players = [*range(r), *([-1] if r % 2 else [])]
    rounds = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = np.array([players[:half], players[: half - 1 : -1]])
        a, b = pairs[:, (pairs >= 0).all(0)]
        if len(a):
            rounds.append((a, b))
        players = [players[0], players[-1], *players[1:-1]]
    return rounds
