"""Algorithm 1 of boix2023: the stages that gradient flow follows as alpha -> 0.

The paper prints b^0 = 0. The base case of its proof (A.5) and log_alpha w(0) -> 1 say b^0 = 1,
which is what we use.
"""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.stationary import Rest, settle

STILL = 1e-11  # rounding leaves drives of this share of the largest
MANY = 10.0  # transition times that a resolved stage lasts, at least


@dataclass(frozen=True)
class Certificate:
    """Numbers that show whether theta^k is a strict local minimum on its support (Assumption 4.3).

    gradient: largest |g_i| on the support.
    hessian_u: smallest eigenvalue there of the Hessian of u -> L(u, s u); infinite on an empty
        support.
    hessian_z: smallest eigenvalue of the Hessian of L in z, likewise.
    """

    gradient: float
    hessian_u: float
    hessian_z: float


@dataclass(frozen=True)
class Stage:
    """The rest theta^k between the times T_k and T_{k+1}, and how it was reached.

    time: T_k, at which the winner became active.
    until: T_{k+1}; infinite when nothing becomes active any more.
    winner: the coordinate whose activation began the stage; None in stage 0, at rest at zero. The
        paper counts it to the stage before: our stage k has its i_{k-1}.
    sign, drive: sign of the winner and its g when it became active.
    margin: rescaled time by which the winner came before the runner-up.
    b: log_alpha(u + v) at T_k; 0 or 2 on the support (s = +1 or -1).
    left: coordinates that left the support in this stage.
    returned: whether the winner had been in the support before.
    tied: coordinates that would have become active at the same time as the winner.
    idle: coordinates outside the support whose drive is zero, so that they wait forever.
    faint: idle coordinates whose drive is not zero, but counts as zero (`still` of `incremental`).
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
    faint: tuple[int, ...] = ()
    message: str = ""

    @property
    def u(self) -> Vector:
        """Weights u = sqrt(|z|) at rest."""
        return self.z.abs().sqrt()

    @property
    def v(self) -> Vector:
        """Weights v = s u at rest."""
        return self.z.sgn() * self.u

    @property
    def support(self) -> tuple[int, ...]:
        """Coordinates that are not zero at rest."""
        return _where(self.z != 0)

    @property
    def transition(self) -> float:
        """Time to settle, not rescaled: an e-folding of the winner, then one of the rest.

        z grows by exp(2 |g| t). Then u relaxes by exp(-hessian_u t / 2), since du/dt = s u g is
        half the gradient of u -> L(u, s u).
        """
        if self.winner is None:
            return 0.0
        return 1 / (2 * abs(self.drive)) + (
            2 / self.certificate.hessian_u if self.strict else math.inf
        )

    @property
    def strict(self) -> bool:
        """True if the rest is a strict minimum on its support, beyond rounding (Assumption 4.3)."""
        return self.converged and self.certificate.hessian_u > 1e-9 * abs(self.drive)

    def resolved(self, log_alpha: float) -> bool:
        """Tell whether many transition times pass at this alpha before anything else happens."""
        gap = min(self.until - self.time, self.margin) * -log_alpha
        return self.converged and gap >= MANY * self.transition

    def remarks(self, network: DiagonalNetwork) -> tuple[str, ...]:
        """Return sentences on what is not as the theorem assumes."""
        names = [str(coordinate) for coordinate in network.coordinates]
        winner = names[self.winner or 0]
        sentences = [self.message] if self.message else []
        if self.tied:
            rivals = ", ".join(names[i] for i in self.tied)
            sentences.append(
                f"{rivals} would become active together with {winner}: "
                "Assumption 4.2 fails, the first of them is taken and the flow may differ"
            )
        if self.converged and not self.strict:
            sentences.append(
                "the Hessian of u -> L(u, s u) has the eigenvalue "
                f"{self.certificate.hessian_u:.1e}: degenerate, Assumption 4.3 fails (or a "
                "coordinate left where its drive is zero)"
            )
        if self.left:
            sentences.append(f"{', '.join(names[i] for i in self.left)} left the support")
        if self.returned:
            sentences.append(f"{winner} came back to the support")
        if self.faint:
            more = f" and {len(self.faint) - 5} more" if len(self.faint) > 5 else ""
            faint = ", ".join(names[i] for i in self.faint[:5]) + more
            sentences.append(
                f"the drive of {faint} is so small that it counts as zero; "
                "pass a smaller still= if it is more than rounding"
            )
        if math.isinf(self.until) and self.converged:
            sentences.append(f"no coordinate ever becomes active after time {self.time:g}")
        return tuple(sentences)


def incremental(
    network: DiagonalNetwork, max_stages: int, *, tie: float = 1e-9, still: float = STILL
) -> Iterator[Stage]:
    """Yield stage 0, at rest at zero, then up to `max_stages` stages of Algorithm 1.

    Ends early when nothing becomes active any more (the last stage's `until` is infinite) or when
    a stage does not come to rest (`converged` is false and `message` says why).

    tie: two activation times equal to this relative precision are a tie; the lower index wins.
    still: share of the largest drive at the start; a smaller drive counts as zero. Remarks of a
        stage name the coordinates that wait for this reason.
    """
    if max_stages < 1:
        raise ValueError(f"max_stages is {max_stages}; it should be at least 1")
    z = torch.zeros(network.p, dtype=torch.float64)
    b = torch.ones_like(z)
    drive = network.g(z)
    still = still * float(drive.abs().max())
    wait = time_until_active(b, drive, z, still=still)
    stage = Stage(
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
        idle=_where(wait.isinf()),
        faint=_where(wait.isinf() & (drive != 0)),
    )
    yield stage
    visited: set[int] = set()  # coordinates that have been in a support
    while stage.index < max_stages and math.isfinite(stage.until):
        stage = _next_stage(network, stage, visited, still=still, tie=tie)
        yield stage
        visited |= {*stage.support, *stage.left}


def _next_stage(
    network: DiagonalNetwork, stage: Stage, visited: AbstractSet[int], *, still: float, tie: float
) -> Stage:
    """Activate the coordinate with the shortest wait, then train the support until it rests."""
    drive = network.g(stage.z)
    wait = time_until_active(stage.b, drive, stage.z, still=still)
    winner = int(wait.argmin())
    first, sign = float(wait[winner]), int(drive[winner].sign())
    behind = wait - first
    behind[winner] = math.inf
    b = torch.where(stage.z == 0, stage.b - drive * first, stage.b)
    b[winner] = 1.0 - sign  # the exact value, which has no rounding to carry on
    signs = stage.z.sgn()
    signs[winner] = sign
    rest = settle(network, stage.z, signs, winner)
    drive_at_rest = network.g(rest.z)
    next_wait = time_until_active(b, drive_at_rest, rest.z, still=still)
    left = sorted({*stage.support, winner} - set(rest.support))
    return Stage(
        index=stage.index + 1,
        time=stage.until,
        until=stage.until + float(next_wait.min()) if rest.converged else math.nan,
        winner=winner,
        sign=sign,
        drive=float(drive[winner]),
        margin=float(behind.min()),
        b=b,
        z=rest.z,
        loss=network.loss(rest.z),
        certificate=_certificate(rest, drive_at_rest, left, still=still),
        converged=rest.converged,
        left=tuple(left),
        returned=winner in visited,
        tied=_where(behind <= tie * stage.until),
        idle=_where(next_wait.isinf() & (rest.z == 0)),
        faint=_where(next_wait.isinf() & (rest.z == 0) & (drive_at_rest != 0)),
        message=rest.message,
    )


def _where(mask: Bool[Tensor, " p"]) -> tuple[int, ...]:
    return tuple(mask.nonzero().flatten().tolist())


def time_until_active(b: Vector, g: Vector, z: Vector, *, still: float = 0.0) -> Vector:
    """Return Delta_k of Eq. 8; infinite on the support and where |g| is at most `still`."""
    moving = (z == 0) & (g.abs() > still)
    return torch.where(moving, (b - 1 + g.sgn()) / g, torch.inf)


def _certificate(rest: Rest, g: Vector, left: list[int], *, still: float) -> Certificate:
    if not rest.converged:
        return Certificate(math.nan, math.nan, math.nan)
    support = list(rest.support)
    z, drive = rest.z[support], g[support]
    if rest.factor is not None:
        in_z = rest.factor.smallest_eigenvalue()
        in_u = rest.factor.scaled(2 * z.abs().sqrt()).smallest_eigenvalue()
    else:
        in_z = float(torch.linalg.eigvalsh(rest.hessian)[0])
        in_u = float(torch.linalg.eigvalsh(hessian_in_u(z, drive, rest.hessian))[0])
    # A coordinate at u = 0 has the second derivative 2 |g|: none if it left without a drive.
    loose = g[left].abs()[g[left].abs() <= still]
    return Certificate(float(drive.abs().max()), min([in_u, *(2 * loose).tolist()]), in_z)


def hessian_in_u(
    z: Float[Tensor, " s"], drive: Float[Tensor, " s"], hessian: Float[Tensor, "s s"]
) -> Float[Tensor, "s s"]:
    """Return the Hessian of u -> L(u, s u) from that of L in z, on a support.

    It is 4 (s u) H (s u)^T - 2 diag(s g); the second term is zero at rest.
    """
    root = z.sgn() * z.abs().sqrt()  # s u
    return 4 * root[:, None] * hessian * root - torch.diag(2 * z.sgn() * drive)
