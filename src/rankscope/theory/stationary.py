"""Stage B of Algorithm 1: training the active coordinates until they rest (boix2023, Eq. 11).

With v = s u the flow on the support is d log|z_i| / dt = 2 s_i g_i: no z_i changes its sign, so it
ends at a KKT point of L on the orthant {s_i z_i >= 0}. Active: g_i = 0 and s_i z_i > 0. Dropped:
z_i = 0 and s_i g_i < 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import Radau
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork

Vector = Float[Tensor, " p"]

START = 1e-4  # |z| of the new coordinate beside the largest: the others hardly feel it yet
DROPPED = 1e-7  # of the largest |z|: below it a falling coordinate is taken for dropped
CLOSE = 0.1  # Newton may move z by this share of it; beyond, it found another point than the flow
CALM = 0.1  # Newton is first tried when the drive has fallen to this share of its largest
CEILING = 1e4  # |z| beyond which the loss is taken to have no finite minimiser
MOST_STEPS = 400


@dataclass(frozen=True)
class Rest:
    """Where stage B ended: z, the Hessian on the support, and whether it is a KKT point."""

    z: Vector
    support: tuple[int, ...]
    hessian: Float[Tensor, "support support"]
    converged: bool
    message: str


def settle(network: DiagonalNetwork, z: Vector, sign: Vector, winner: int) -> Rest:
    """The point at rest that the flow reaches from z plus a small step of the winner.

    sign: s_i of the coordinates that may move, 0 for all others.

    Flows by a stiff solver until the drive has calmed down, then tries Newton's method: taken if
    it ends inside the orthant, at a minimum, not above the flow's loss, and close by; otherwise the
    flow goes on.
    """
    flow = _OrthantFlow(network, z, sign, winner)
    # An error of 1e-2 in log |z| does not matter on the way to a point that attracts.
    solver = Radau(flow.slope, 0.0, flow.start, np.inf, jac=flow.jacobian, rtol=3e-14, atol=1e-2)
    drive, tried = 0.0, np.inf
    for _ in range(MOST_STEPS):
        problem = solver.step()
        z = flow.z(solver.y)
        if problem is not None or float(z.abs().max()) > CEILING:
            break
        residual = flow.residual(z)
        drive = max(drive, residual)
        if residual < CALM * min(drive, tried / 3 / CALM):
            tried = residual
            found = _newton(network, z, sign)
            if found is not None:
                return found
    return Rest(
        z,
        tuple(sign.nonzero().flatten().tolist()),
        torch.full((0, 0), torch.nan, dtype=torch.float64),
        False,
        f"stage B did not come to rest: |z| is {float(z.abs().max()):.3g} and the drive still "
        f"{flow.residual(z):.1e}; if the loss has no finite minimiser, give the network a decay",
    )


class _OrthantFlow:
    """The balanced flow in log |z| of the coordinates that may move."""

    def __init__(self, network: DiagonalNetwork, z: Vector, sign: Vector, winner: int) -> None:
        self.network = network
        self.support = sign.nonzero().flatten()
        self.sign = sign[self.support]
        size = z.abs()
        size[winner] = START * max(1.0, float(size.max()))
        self.start = size[self.support].log().numpy()

    def z(self, state: Float[np.ndarray, " support"]) -> Vector:
        z = torch.zeros(self.network.p, dtype=torch.float64)
        # A trial step may overshoot: it should fail, not overflow.
        bounded = torch.from_numpy(state).clamp(max=float(np.log(100 * CEILING)))
        z[self.support] = self.sign * bounded.exp()
        return z

    def slope(self, time: float, state: Float[np.ndarray, " support"]) -> np.ndarray:
        slope: np.ndarray = (2 * self.sign * self.network.g(self.z(state))[self.support]).numpy()
        return slope

    def jacobian(self, time: float, state: Float[np.ndarray, " support"]) -> np.ndarray:
        z = self.z(state)
        hessian = self.network.hessian(z, self.support.tolist())[self.support]
        found: np.ndarray = (-2 * self.sign[:, None] * hessian * z[self.support]).numpy()
        return found

    def residual(self, z: Vector) -> float:
        """The largest drive of a coordinate that is neither dropped nor on its way there."""
        drive = self.sign * self.network.g(z)[self.support]
        size = z[self.support].abs()
        moving = (size > DROPPED * size.max()) | (drive > 0)
        return float(drive[moving].abs().max())


def _newton(network: DiagonalNetwork, z: Vector, sign: Vector) -> Rest | None:
    """Newton's method on the coordinates not dropped; None unless all conditions hold."""
    alive = (z.abs() > DROPPED * z.abs().max()) & (sign != 0)
    support = alive.nonzero().flatten()
    start, loss = z, network.loss(z)
    z = torch.where(alive, z, 0.0)
    scale = float(network.g(torch.zeros_like(z)).abs().max())
    for _ in range(20):
        hessian = network.hessian(z, support.tolist())[support]
        values, vectors = torch.linalg.eigh(hessian)
        if values[0] < -1e-9 * values[-1]:
            return None  # a saddle: the flow only passes by
        # Flat directions, if any, are left where the flow brought them.
        inverse = torch.where(values > 1e-12 * values[-1], 1 / values, 0.0)
        drive = network.g(z)[support]
        change = vectors @ (inverse * (vectors.T @ drive))
        if not bool((sign[support] * (z[support] + change) > 0).all()):
            return None
        z = z.index_add(0, support, change)
        if float(change.abs().max()) <= 1e-13 * float(z.abs().max()):
            break
    drive = network.g(z)
    settled = float(drive[support].abs().max()) <= 1e-10 * max(scale, float(drive.abs().max()))
    close = float((z - start).norm()) <= CLOSE * float(start.norm())
    falling = bool((sign * drive)[(sign != 0) & ~alive].le(0).all())
    not_above = network.loss(z) <= loss * (1 + 1e-12)
    if not (settled and close and falling and not_above):
        return None
    return Rest(z, tuple(support.tolist()), hessian, True, "")
