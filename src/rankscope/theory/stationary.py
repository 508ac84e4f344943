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
from rankscope.theory.reduction import LARGEST

Vector = Float[Tensor, " p"]

START = 1e-4  # |z| of the new coordinate beside where it seems to go: nobody feels it yet
DROPPED = 1e-7  # of the largest |z|: below it a falling coordinate is taken for dropped
CLOSE = 0.1  # Newton may move z by this share of it; beyond, it found another point than the flow
CALM = 0.1  # Newton is first tried when the drive has fallen to this share of its largest
PATIENCE = 1e12  # e-foldings of the winner: who has not come to rest by then never will
TOLERANCE = 1e-2  # in log |z|: on the way to a point that attracts, errors heal
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
    push = abs(float(network.g(z)[winner]))
    solver = Radau(
        flow.slope, 0.0, flow.start, np.inf, jac=flow.jacobian, rtol=3e-14, atol=TOLERANCE
    )
    drive, tried = push, np.inf
    for _ in range(MOST_STEPS):
        before = solver.y
        problem = solver.step()
        z = flow.z(solver.y)
        if problem is not None or solver.t * push > PATIENCE:
            break
        residual = flow.residual(z)
        drive = max(drive, residual)
        calm = residual < CALM * min(drive, tried / 3 / CALM)
        # Or the solver stands still within its tolerance, and cannot show a smaller drive.
        still = (solver.t - solver.t_old) * push > 1 and np.abs(solver.y - before).max() < TOLERANCE
        if calm or still:
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
        size[winner] = START * self._goal(z, winner)
        self.start = size[self.support].log().numpy()

    def _goal(self, z: Vector, winner: int) -> float:
        """About how large the new coordinate will be: by Newton's step, or as the others are."""
        curvature = float(self.network.hessian(z, [winner])[winner, 0])
        step = abs(float(self.network.g(z)[winner])) / curvature if curvature > 0 else np.inf
        largest = float(z.abs().max()) or np.inf
        found = min(step, largest)
        return found if np.isfinite(found) else 1.0

    def z(self, state: Float[np.ndarray, " support"]) -> Vector:
        z = torch.zeros(self.network.p, dtype=torch.float64)
        # A trial step may overshoot: it should fail, not overflow.
        bounded = torch.from_numpy(state).clamp(max=float(np.log(LARGEST)))
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
        # In u: where the valley is flat, the flow moves each z in proportion to its size.
        u = z[support].abs().sqrt()
        values, vectors = torch.linalg.eigh(u[:, None] * hessian * u)
        if values[0] < -1e-9 * values[-1] or not values[-1] > 0:
            return None  # a saddle, which the flow only passes; or far out, where all is flat
        inverse = torch.where(values > 1e-12 * values[-1], 1 / values, 0.0)
        drive = network.g(z)[support]
        change = u * (vectors @ (inverse * (vectors.T @ (u * drive))))
        if not bool((sign[support] * (z[support] + change) > 0).all()):
            return None
        z = z.index_add(0, support, change)
        if float(change.abs().max()) <= 1e-13 * float(z.abs().max()):
            break
    else:
        return None  # on an exponential tail each step is as long as the one before
    drive = network.g(z)
    settled = float(drive[support].abs().max()) <= 1e-10 * max(scale, float(drive.abs().max()))
    close = float((z - start).norm()) <= CLOSE * float(start.norm())
    falling = bool((sign * drive)[(sign != 0) & ~alive].le(0).all())
    not_above = network.loss(z) <= loss + 1e-12 * abs(loss)
    if not (settled and close and falling and not_above):
        return None
    return Rest(z, tuple(support.tolist()), hessian, True, "")
