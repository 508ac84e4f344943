"""Algorithm 1 of boix2023: the stages that gradient flow follows as alpha -> 0.

Printed with b^0 = 0; the base case of its proof (A.5) and log_alpha w(0) -> 1 say b^0 = 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.stationary import Rest, settle

Vector = Float[Tensor, " p"]

# Beside the drive at the start: what rounding leaves of a drive that is zero.
STILL = 1e-11

MANY = 10.0  # transition times that keep a resolved stage from what comes next


@dataclass(frozen=True)
class Certificate:
    """How well theta^k is a strict local minimum on its support (Assumption 4.3).

    gradient: largest |g_i| on the support. hessian_u: smallest eigenvalue of the Hessian of
    u -> L(u, s u) there; hessian_z: that of L in z. Infinite where the support is empty.
    """

    gradient: float
    hessian_u: float
    hessian_z: float


@dataclass(frozen=True)
class Stage:
    """The rest theta^k between the times T_k and T_{k+1}, and how it was reached.

    winner: the coordinate whose activation began the stage (None: stage 0, rest at zero; the
        paper counts it to the stage before, our stage k has its i_{k-1}), with
        its `sign` and its `drive` g then. It won by `margin`: so much later, in rescaled time, the
        runner-up would have become active.
    b: log_alpha(u + v) at T_k; 0 or 2 on the support (s = +1 or -1).
    until: T_{k+1}, infinite when nothing will become active any more.
    left, returned: coordinates that left the support in this stage; whether the winner had been
        there before. tied: coordinates that would have become active at the same time as the
        winner. idle: those outside the support whose drive is zero, so that they wait forever.
    """

    index: int
    time: float
    until: float
    winner: int | None
    sign: int
    drive: float
    margin: float
    b: Vector
    z: Vector
    loss: float
    certificate: Certificate
    converged: bool = True
    left: tuple[int, ...] = ()
    returned: bool = False
    tied: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    message: str = ""

    @property
    def u(self) -> Vector:
        return self.z.abs().sqrt()

    @property
    def v(self) -> Vector:
        return self.z.sgn() * self.u

    @property
    def support(self) -> tuple[int, ...]:
        return tuple(self.z.nonzero().flatten().tolist())

    @property
    def transition(self) -> float:
        """Time, not rescaled, of settling: an e-folding of the winner and one of the rest.

        z grows by exp(2 |g| t); then u relaxes by exp(-hessian_u t / 2), since du/dt = s u g is
        half the gradient of u -> L(u, s u).
        """
        if self.winner is None:
            return 0.0
        return 1 / (2 * abs(self.drive)) + (
            2 / self.certificate.hessian_u if self.strict else math.inf
        )

    @property
    def strict(self) -> bool:
        """Whether the rest is a strict minimum on its support, beyond rounding (Assumption 4.3)."""
        return self.converged and self.certificate.hessian_u > 1e-9 * abs(self.drive)

    def resolved(self, log_alpha: float) -> bool:
        """Whether at this alpha many transition times pass before anything else happens."""
        gap = min(self.until - self.time, self.margin) * -log_alpha
        return self.converged and gap >= MANY * self.transition

    def remarks(self, network: DiagonalNetwork) -> tuple[str, ...]:
        """What is not as the theorem assumes, in sentences."""
        name = network.coordinates
        found = [self.message] if self.message else []
        if self.tied:
            others = ", ".join(str(name[i]) for i in self.tied)
            found.append(
                f"{others} would become active together with {name[self.winner or 0]}: "
                "Assumption 4.2 fails, the first of them is taken and the flow may differ"
            )
        if self.converged and not self.strict:
            found.append(
                "the Hessian of u -> L(u, s u) has the eigenvalue "
                f"{self.certificate.hessian_u:.1e}: degenerate, Assumption 4.3 fails (or a "
                "coordinate left where its drive is zero)"
            )
        if self.left:
            found.append(f"{', '.join(str(name[i]) for i in self.left)} left the support")
        if self.returned:
            found.append(f"{name[self.winner or 0]} came back to the support")
        if math.isinf(self.until) and self.converged:
            found.append(f"no coordinate ever becomes active after time {self.time:g}")
        return tuple(found)


def incremental(
    network: DiagonalNetwork,
    max_stages: int,
    *,
    tie: float = 1e-9,
) -> Iterator[Stage]:
    """Stage 0, at rest at zero, then up to `max_stages` stages of Algorithm 1.

    Ends early when nothing becomes active any more (the last stage's `until` is infinite) or when
    a stage does not come to rest (`converged` is false and `message` says why).

    tie: two activation times equal to this relative precision are a tie; the lower index wins.
    """
    if max_stages < 1:
        raise ValueError(f"max_stages is {max_stages}; it should be at least 1")
    p = network.p
    z = torch.zeros(p, dtype=torch.float64)
    b = torch.ones(p, dtype=torch.float64)
    g = network.g(z)
    still = STILL * float(g.abs().max())
    wait = time_until_active(b, g, z, still=still)
    idle = _idle(wait, z)
    yield Stage(
        index=0,
        time=0.0,
        until=float(wait.min()),
        winner=None,
        sign=0,
        drive=0.0,
        margin=math.inf,
        b=b,
        z=z,
        loss=network.loss(z),
        certificate=Certificate(0.0, math.inf, math.inf),
        idle=idle,
    )
    time, seen = 0.0, set()
    for k in range(1, max_stages + 1):
        winner = int(wait.argmin())
        ahead = float(wait[winner])
        if math.isinf(ahead):
            return
        time += ahead
        others = wait.clone()
        others[winner] = math.inf
        margin = float(others.min()) - ahead
        tied = tuple((others - ahead <= tie * time).nonzero().flatten().tolist())
        b = torch.where(z == 0, b - g * ahead, b)
        sign = int(g[winner].sign())
        b[winner] = 1.0 - sign  # exactly: it has no rounding to carry on
        signs = z.sgn()
        signs[winner] = sign
        drive = float(g[winner])
        before = set(z.nonzero().flatten().tolist()) | {winner}
        rest = settle(network, z, signs, winner)
        z = rest.z
        g = network.g(z)
        wait = time_until_active(b, g, z, still=still)
        yield Stage(
            index=k,
            time=time,
            until=time + float(wait.min()) if rest.converged else math.nan,
            winner=winner,
            sign=sign,
            drive=drive,
            margin=margin,
            b=b,
            z=z,
            loss=network.loss(z),
            certificate=_certificate(rest, g),
            converged=rest.converged,
            left=tuple(sorted(before - set(rest.support))),
            returned=winner in seen,
            tied=tied,
            idle=_idle(wait, z),
            message=rest.message,
        )
        if not rest.converged:
            return
        seen |= before


def time_until_active(b: Vector, g: Vector, z: Vector, *, still: float = 0.0) -> Vector:
    """Delta_k of Eq. 8; infinite on the support and where |g| is at most `still`."""
    moving = (z == 0) & (g.abs() > still)
    return torch.where(moving, (b - 1 + g.sgn()) / g, torch.inf)


def _idle(wait: Vector, z: Vector) -> tuple[int, ...]:
    return tuple((wait.isinf() & (z == 0)).nonzero().flatten().tolist())


def _certificate(rest: Rest, g: Vector) -> Certificate:
    if not rest.converged:
        return Certificate(math.nan, math.nan, math.nan)
    support = list(rest.support)
    if not support:
        return Certificate(0.0, math.inf, math.inf)
    drive = g[support]
    in_u = hessian_in_u(rest.z[support], drive, rest.hessian)
    return Certificate(
        float(drive.abs().max()),
        float(torch.linalg.eigvalsh(in_u)[0]),
        float(torch.linalg.eigvalsh(rest.hessian)[0]),
    )


def hessian_in_u(
    z: Float[Tensor, " s"], drive: Float[Tensor, " s"], hessian: Float[Tensor, "s s"]
) -> Float[Tensor, "s s"]:
    """The Hessian of u -> L(u, s u) from that of L in z, on a support.

    4 (s u) H (s u)^T, and -2 s g on the diagonal, which is zero at rest.
    """
    root = z.sgn() * z.abs().sqrt()  # s u
    return 4 * root[:, None] * hessian * root - torch.diag(2 * z.sgn() * drive)
