"""Coordinate y in which gradient flow never underflows (boix2023, App. A.3 and Eq. 5).

Without loss of generality u > |v|: swap u and v where |v| > |u|, then (u, v) <- sgn(u) (u, v). This
changes neither the product z = u v nor its dynamics. (The paper prints v <- sgn(v) v, which changes
the product.) Then c = u^2 - v^2 > 0 is conserved, and each pair is described by one number,

    y = 1/2 log((u + v) / (u - v)),   u = sqrt(c) cosh y,   v = sqrt(c) sinh y,   z = c/2 sinh 2y,

with dy/dt = g. As alpha -> 0, log_alpha(u + v) -> 1 - y / log(1/alpha): the paper's b.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Vector = Float[Tensor, " p"]
Many = Float[Tensor, "*batch p"]

# Largest |z|. A solver's trial step may carry y far past anything the flow visits; with this limit
# the trial fails instead of overflowing.
LARGEST = 1e30


@dataclass(frozen=True)
class Reduction:
    """Relation between (u, v) and y along the flow from alpha (u0, v0).

    log_c: log of the conserved c = |u^2 - v^2|.
    y0: y at the start.
    swapped: where u and v were swapped.
    sign: sign of the larger weight.
    """

    log_c: Vector
    y0: Vector
    swapped: Bool[Tensor, " p"]
    sign: Vector

    @classmethod
    def of(cls, u0: Vector, v0: Vector, log_alpha: float) -> "Reduction":
        """Return the reduction of the flow that starts at exp(log_alpha) (u0, v0)."""
        if not (-torch.inf < log_alpha < 0):
            raise ValueError(
                f"log_alpha is {log_alpha:g}; alpha should be between 0 and 1, so its logarithm "
                "is negative and finite: pass math.log(alpha)"
            )
        u0, v0 = checked_start(u0, v0)
        swapped = v0.abs() > u0.abs()
        larger, smaller = torch.where(swapped, v0, u0), torch.where(swapped, u0, v0)
        u, v = larger.abs(), larger.sgn() * smaller
        plus, minus = (u + v).log(), (u - v).log()
        # Two forms of y: the first is inaccurate where v is near u, the second where v is small.
        y0 = torch.where(v.abs() < u / 2, torch.atanh(v / u), (plus - minus) / 2)
        return cls(2 * log_alpha + plus + minus, y0, swapped, larger.sgn())

    def z(self, y: Many) -> Many:
        """Return the product u v = (c/2) sinh 2y."""
        size = 2 * y.abs()
        return y.sgn() * self._half_exponential(size) * -torch.expm1(-2 * size) / 2

    def dz_dy(self, y: Many) -> Many:
        """Return u^2 + v^2 = c cosh 2y."""
        size = 2 * y.abs()
        return self._half_exponential(size) * (1 + torch.exp(-2 * size))

    def _half_exponential(self, size: Many) -> Many:
        largest = torch.tensor(2 * LARGEST, dtype=torch.float64).log()
        return torch.exp((self.log_c + size).clamp(max=float(largest))) / 2

    def y_at(self, z: float | Many) -> Many:
        """Return the y at which the product is z: 1/2 asinh(2 z / c)."""
        z = torch.as_tensor(z, dtype=torch.float64)
        log_ratio = (2 * z.abs()).log() - self.log_c
        # asinh(r) = log(r + sqrt(1 + r^2)), without forming r, which may overflow
        root = torch.logaddexp(torch.zeros_like(log_ratio), 2 * log_ratio) / 2
        return z.sgn() * torch.logaddexp(log_ratio, root) / 2

    def weights(self, y: Many) -> tuple[Many, Many]:
        """Return (u, v) of the network, with swaps and signs undone; 0 where below 1e-308."""
        # sqrt(c) e^{|y|} / 2 has the size of the weights; e^{|y|} alone may overflow.
        half = torch.exp(self.log_c / 2 + y.abs()) / 2
        rest = torch.exp(-2 * y.abs())
        larger, smaller = half * (1 + rest), y.sgn() * half * -torch.expm1(-2 * y.abs())
        u = torch.where(self.swapped, smaller, larger) * self.sign
        v = torch.where(self.swapped, larger, smaller) * self.sign
        return u, v


def checked_start(u0: Vector, v0: Vector) -> tuple[Vector, Vector]:
    """Return u0 and v0 in float64, or refuse them where Assumption 4.2 fails at once."""
    if u0.shape != v0.shape:
        raise ValueError(f"u0 has {len(u0)} entries and v0 {len(v0)}; pass equally many")
    u0, v0 = u0.detach().to(torch.float64), v0.detach().to(torch.float64)
    if not bool((u0.isfinite() & v0.isfinite()).all()):
        raise ValueError("u0 or v0 holds NaN or infinite values; pass finite ones")
    if bool((equal := u0.abs() == v0.abs()).any()):
        where = ", ".join(str(int(i)) for i in equal.nonzero().flatten()[:8])
        raise ValueError(
            f"|u0| = |v0| at coordinate {where}: nothing decides the sign it would grow with, and "
            "boix2023's Assumption 4.2 excludes it; draw u0 and v0 independently"
        )
    return u0, v0
