"""Stage B of Algorithm 1: train the active coordinates until they rest (boix2023, Eq. 11).

With v = s u the flow on the support is d log|z_i| / dt = 2 s_i g_i. No z_i changes its sign, so the
flow ends at a KKT point of L on the orthant {s_i z_i >= 0}. There each coordinate is active, with
g_i = 0 and s_i z_i > 0, or dropped, with z_i = 0 and s_i g_i < 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.integrate import Radau
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.quadratic import Factor, constrained_minimum
from rankscope.theory.reduction import LARGEST

START = 1e-4  # first |z| of the new coordinate, as a share of its goal: too small to matter yet
DROPPED = 1e-7  # share of its own largest |z| below which a falling coordinate counts as dropped
CLOSE = 0.1  # share of its largest |z| by which Newton may move a coordinate
CALM = 0.1  # share of its largest to which the drive falls before Newton is first tried
PATIENCE = 1e12  # e-foldings of the winner after which a flow will never come to rest
TOLERANCE = 1e-2  # error in log |z|; on the way to an attracting point, errors heal
MOST_STEPS = 400
SHRINKING = 0.9  # a Newton step is shorter than this share of the last, or the method has ended
NOISE = 1e-4  # longest last step, as a share of z: rounding blurs a quartic minimum by 1e-5
MOST_NEWTON_STEPS = 80  # at a quartic minimum each takes away a third of what is left


@dataclass(frozen=True)
class Rest:
    """End of stage B: z, the Hessian on its support, and whether it is a KKT point.

    factor: of the Hessian, if it is constant.
    """

    z: Vector
    support: tuple[int, ...]
    hessian: Float[Tensor, "support support"]
    converged: bool
    message: str
    factor: Factor | None = None


def settle(network: DiagonalNetwork, z: Vector, sign: Vector, winner: int) -> Rest:
    """Return the point at rest that the flow reaches from z plus a small step of the winner.

    A stiff solver follows the flow until the drive has calmed down. Then Newton's method is tried.
    Its result counts if it lies inside the orthant, at a minimum, not above the flow's loss, and
    close by; otherwise the flow goes on. A loss with a constant Hessian needs no flow.

    sign: s_i of the coordinates that may move, 0 for all others.
    """
    if network.constant_hessian is not None:
        minimum = constrained_minimum(network, z, sign)
        if minimum is not None:
            z, factor = minimum
            support = z.nonzero().flatten()
            hessian = network.constant_hessian[support][:, support]
            return Rest(z, tuple(support.tolist()), hessian, True, "", factor)
    flow = _OrthantFlow(network, z, sign, winner)
    push = abs(float(network.g(z)[winner]))
    solver = Radau(
        flow.slope, 0.0, flow.start, np.inf, jac=flow.jacobian, rtol=3e-14, atol=TOLERANCE
    )
    largest_residual, last_tried = push, np.inf
    largest = z.abs()  # of each coordinate, so far
    for _ in range(MOST_STEPS):
        before = solver.y
        problem = solver.step()
        z = flow.z(solver.y)
        largest = torch.maximum(largest, z.abs())
        if problem is not None or solver.t * push > PATIENCE:
            break
        residual = flow.residual(z, largest)
        largest_residual = max(largest_residual, residual)
        calm = residual < CALM * min(largest_residual, last_tried / 3 / CALM)
        # A solver that stands still within its tolerance cannot show a smaller drive.
        still = (solver.t - solver.t_old) * push > 1 and np.abs(solver.y - before).max() < TOLERANCE
        if calm or still:
            last_tried = residual
            rest = _newton(network, z, sign, largest)
            if rest is not None:
                return rest
    return Rest(
        z,
        tuple(sign.nonzero().flatten().tolist()),
        torch.full((0, 0), torch.nan, dtype=torch.float64),
        False,
        f"stage B did not come to rest: |z| is {float(z.abs().max()):.3g} and the drive still "
        f"{flow.residual(z, largest):.1e}; if |z| grows without end, give the network a decay, "
        "else bring its coordinates to similar units",
    )


class _OrthantFlow:
    """Balanced flow, in log |z|, of the coordinates that may move."""

    def __init__(self, network: DiagonalNetwork, z: Vector, sign: Vector, winner: int) -> None:
        self.network = network
        self.support = sign.nonzero().flatten()
        self.sign = sign[self.support]
        size = z.abs()
        # The winner will be about as large as Newton's step, but at most as the largest |z|.
        curvature = float(network.hessian(z, [winner])[winner, 0])
        step = abs(float(network.g(z)[winner])) / curvature if curvature > 0 else np.inf
        goal = min(step, float(size.max()) or np.inf)
        size[winner] = START * (goal if np.isfinite(goal) else 1.0)
        self.start = size[self.support].log().numpy()

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
        jacobian: np.ndarray = (-2 * self.sign[:, None] * hessian * z[self.support]).numpy()
        return jacobian

    def residual(self, z: Vector, largest: Vector) -> float:
        """Return the largest drive of a coordinate that is not dropped nor falling towards it."""
        drive = self.sign * self.network.g(z)[self.support]
        moving = (z.abs() > DROPPED * largest)[self.support] | (drive > 0)
        return float(drive[moving].abs().max())


def _newton(network: DiagonalNetwork, start: Vector, sign: Vector, largest: Vector) -> Rest | None:
    """Find the rest by Newton's method on the coordinates not dropped.

    Returns None if a condition of `settle` fails.
    """
    alive = (start.abs() > DROPPED * largest) & (sign != 0)
    support = alive.nonzero().flatten()
    z = torch.where(alive, start, 0.0)
    last_change = np.inf
    for _ in range(MOST_NEWTON_STEPS):
        hessian = network.hessian(z, support.tolist())[support]
        change = _newton_step(z[support], network.g(z)[support], hessian)
        if change is None or not bool((sign[support] * (z[support] + change) > 0).all()):
            return None
        z = z.index_add(0, support, change)
        relative_change = float((change / z[support]).abs().max())
        # On an exponential tail each step is as long as the one before.
        if relative_change <= 1e-13 or relative_change > SHRINKING * last_change:
            break
        last_change = relative_change
    drive = network.g(z)
    close = bool(((z - start).abs() <= CLOSE * largest)[support].all())
    falling = bool((sign * drive)[(sign != 0) & ~alive].le(0).all())
    not_above = network.loss(z) <= (loss := network.loss(start)) + 1e-12 * abs(loss)
    settled = relative_change <= NOISE and at_rest(network, z, drive, support, hessian)
    if not (settled and close and falling and not_above):
        return None
    return Rest(z, tuple(support.tolist()), hessian, True, "")


def _newton_step(
    z: Float[Tensor, " s"], drive: Float[Tensor, " s"], hessian: Float[Tensor, "s s"]
) -> Float[Tensor, " s"] | None:
    """Return the Newton step, taken in u; None where the loss is no valley.

    In a flat valley the flow moves each z in proportion to its size, and so does a step in u.
    """
    u = z.abs().sqrt()
    in_u = u[:, None] * hessian * u
    values, vectors = torch.linalg.eigh(in_u)
    if values[0] < -1e-9 * values[-1] or not values[-1] > 0:
        return None  # at a saddle, which the flow only passes, or far out, where all is flat
    # With a unit diagonal, units of the coordinates cannot pose as flat directions.
    unit = in_u.diagonal().clamp(min=torch.finfo(in_u.dtype).tiny).rsqrt()
    factor, failed = torch.linalg.cholesky_ex(unit[:, None] * in_u * unit)
    if not failed and float(factor.diagonal().min()) > 1e-6:
        scaled = torch.cholesky_solve((unit * u * drive)[:, None], factor)[:, 0]
        return u * unit * scaled
    inverse = torch.where(values > 1e-12 * values[-1], 1 / values, 0.0)
    step: Tensor = u * (vectors @ (inverse * (vectors.T @ (u * drive))))
    return step


def at_rest(
    network: DiagonalNetwork,
    z: Vector,
    drive: Vector,
    support: Int[Tensor, " s"],
    hessian: Float[Tensor, "s s"],
) -> bool:
    """Tell whether the drives on the support are zero, as far as their terms allow."""
    terms = network.g(torch.zeros_like(z))[support].abs() + hessian.abs() @ z[support].abs()
    return bool((drive[support].abs() <= 1e-10 * terms).all())
