"""Spectrum of one change of a weight: leading singular values, and the norm of all that is left."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.noise import bulk_of, largest_of_noise

ENERGIES = (0.5, 0.9, 0.99)

# Integers as long as each format, and the bits of its exponent in them.
EXPONENTS = {
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.bfloat16: (torch.int16, 0x7F80),
    torch.float16: (torch.int16, 0x7C00),
}
SMALLEST_BULK = 16  # directions; all of fewer can be signal, as in the output layer of few classes
ROWS = 256  # of a weight whose rounding is looked at together


@dataclass(frozen=True)
class Spectrum:
    """Leading singular values S of an m x n change, and the Frobenius norm `rest` of what is left.

    rounding: size that a singular value can have by the rounding of the tuned weights alone.
    kind: kind of the matrix, such as "linear", "conv" or "embedding".
    """

    S: Float[Tensor, " k"]
    m: int
    n: int
    rest: float = 0.0
    rounding: float = 0.0
    kind: str = "linear"

    @property
    def complete(self) -> bool:
        """Whether these are all singular values."""
        return len(self.S) == min(self.m, self.n) or self.rest == 0.0

    @property
    def norm(self) -> float:
        """Frobenius norm of the change."""
        return math.sqrt(self.tails()[0])

    @property
    def size(self) -> int:
        """Number of parameters of one direction: m + n."""
        return self.m + self.n

    def tails(self) -> Float[np.ndarray, " ranks"]:
        """Squared errors of the best approximations of rank 0, 1, ... len(S).

        Summed from the smallest value on, so that small errors of large changes are exact.
        """
        squares = self.S.double().numpy(force=True) ** 2
        return np.cumsum(np.append(squares, self.rest**2)[::-1])[::-1]

    def error(self, rank: int) -> float:
        """Relative Frobenius error of the best approximation of a rank; NaN of a zero change."""
        tails = self.tails()
        return math.sqrt(tails[min(rank, len(self.S))] / tails[0]) if tails[0] else math.nan

    def energy_rank(self, fraction: float) -> int | None:
        """Smallest rank with a share of the energy |W|_F^2; None if it is above len(S)."""
        if not 0 < fraction <= 1:
            raise ValueError(f"energy is a share between 0 and 1, got {fraction}")
        tails = self.tails()
        enough = tails <= (1 - fraction) * tails[0] * (1 + 1e-12)
        return int(enough.argmax()) if enough.any() else None

    @property
    def noise(self) -> float:
        """Noise floor: rounding or the edge of random noise, whichever is larger."""
        return max(self.rounding, noise_edge(self))

    @property
    def signal(self) -> int:
        """Number of known singular values above the noise floor."""
        return int((self.noise < self.S).sum())

    def energy_ranks(self) -> tuple[int | str, ...]:
        """Ranks at 50, 90 and 99% of the energy; ">64" where 64 known values hold less."""
        ranks = (self.energy_rank(fraction) for fraction in ENERGIES)
        return tuple(f">{len(self.S)}" if rank is None else rank for rank in ranks)


def noise_edge(spectrum: Spectrum) -> float:
    """Largest singular value that random noise of the size of the bulk would have.

    One noise matrix in a hundred exceeds it. The edge is 0 where all values are signal, and for a
    matrix of few directions, which has no bulk.
    """
    if min(spectrum.m, spectrum.n) < SMALLEST_BULK:
        return 0.0
    S = spectrum.S.double().numpy(force=True)
    bulk = bulk_of(S, spectrum.tails(), spectrum.m, spectrum.n)
    if bulk.deviation == 0.0:
        return 0.0
    return bulk.deviation * largest_of_noise(spectrum.m - bulk.beyond, spectrum.n - bulk.beyond)


def rounding_level(W: Float[Tensor, "m n"]) -> float:
    """Spectral norm that the rounding errors of stored weights can have.

    A number whose format has spacing d around it is off by up to d/2, with variance d^2 / 12. For a
    matrix of independent entries with variances v, the spectral norm is about sqrt(the largest row
    sum of v) + sqrt(the largest column sum). Rows of different size round differently.
    """
    if W.numel() == 0:
        return 0.0
    W = W if W.dtype in EXPONENTS else W.float()
    limits = torch.finfo(W.dtype)
    rows, columns = (torch.zeros(size, dtype=torch.float64) for size in W.shape)
    for start in range(0, len(W), ROWS):
        part = slice(start, start + ROWS)
        powers = _powers_of_two(W[part].cpu())
        # Below the smallest normal number weights round as coarsely as there.
        powers = powers.clamp(min=limits.smallest_normal).double().mul_(limits.eps).square_()
        rows[part] = powers.sum(1)
        columns += powers.sum(0)
    return math.sqrt(float(rows.max()) / 12) + math.sqrt(float(columns.max()) / 12)


def _powers_of_two(W: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Largest power of two in each number: its exponent bits alone."""
    integers, mask = EXPONENTS[W.dtype]
    return (W.contiguous().view(integers) & mask).view(W.dtype)
