"""Assumptions 4.2-4.4 of boix2023's Theorem 4.5, checked directly on the stages of Algorithm 1.

The paper's own test of 4.3 and 4.4, to perturb a run and train on, is `theory.perturbation`;
`check_returns` judges it, and `check_return_to_rest` is what it becomes as alpha -> 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.algorithm import Stage, hessian_in_u
from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.perturbation import NOISES, Noise, Trial, continued, perturbed
from rankscope.theory.reduction import Reduction

Vector = Float[Tensor, " p"]

# log(u^2 - v^2) of weights that count as balanced: far below anything a flow brings back up.
BALANCED = -1e4

# Local error in y that does not matter on the way to a point that attracts.
ROUGH = 1e-3


@dataclass(frozen=True)
class Check:
    """Whether an assumption holds. `value`, the worst found, is to be above `bound` (of a distance:
    at most `bound`). `details` has one number of each kind for every stage, or trial.
    """

    holds: bool
    value: float
    bound: float
    sentence: str
    details: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def check_nondegeneracy(
    network: DiagonalNetwork,
    stages: Sequence[Stage],
    u0: Vector,
    v0: Vector,
    *,
    tie: float = 1e-9,
) -> Check:
    """Assumption 4.2: |u0| != |v0|; one winner in each stage; no drive is zero that should not be.

    The value is the smallest margin by which a winner won, relative to the time it won at. Details:
    that of each stage, `margin` in rescaled time, and `left_drive`, the smallest |g_i| relative to
    the largest at zero of coordinates that just left the support (infinite where none did).
    """
    scale = float(network.g(torch.zeros_like(stages[0].z)).abs().max())
    margins = [stage.margin for stage in stages]
    relative = [
        m / s.time if s.time > 0 else math.inf for m, s in zip(margins, stages, strict=True)
    ]
    left = [_left_drive(network, stage) / (scale or 1.0) for stage in stages]
    unequal = bool((u0.abs() != v0.abs()).all())
    value = min(relative)
    faults = [
        *(["|u0| = |v0| in some coordinate"] if not unequal else []),
        *(f"stage {k} has no unique winner" for k, m in enumerate(relative) if not m > tie),
        *(
            f"a coordinate that left in stage {k} has no drive"
            for k, m in enumerate(left)
            if m < tie
        ),
    ]
    return Check(
        not faults,
        value,
        tie,
        _sentence("4.2", faults, f"winners by at least {value:.2g} of the time they won at"),
        {"margin": tuple(margins), "relative_margin": tuple(relative), "left_drive": tuple(left)},
    )


def _left_drive(network: DiagonalNetwork, stage: Stage) -> float:
    if not stage.left:
        return math.inf
    return float(network.g(stage.z)[list(stage.left)].abs().min())


def check_strict_minima(
    network: DiagonalNetwork,
    stages: Sequence[Stage],
    *,
    radius: float = 0.05,
    flat: float = 1e-9,
) -> Check:
    """Assumption 4.3: theta^k is a strict local minimum of u -> L(u, s u) on its support.

    The value is the smallest eigenvalue of that function's Hessian relative to the largest, worst
    stage; below `flat` rounding may have made it. Details: `hessian_u`, the smallest eigenvalue
    itself, and `constant`, the assumption's c_k at distance `radius`: the least of
    (L(u~, s u~) - L(theta^k)) / |u~ - u^k|^2 over steps both ways along each eigenvector. (The
    paper prints it without L(theta^k).) At a small distance c_k is half of hessian_u.
    """
    found = [_strictness(network, stage, radius) for stage in stages]
    relative, smallest, constant = zip(*found, strict=True)
    faults = [
        f"stage {k} does not rest at a strict minimum"
        for k, m in enumerate(relative)
        if not m > flat
    ]
    value = min(relative, key=lambda m: -_worst(-m))
    return Check(
        not faults,
        value,
        flat,
        _sentence("4.3", faults, f"smallest eigenvalue {min(smallest):.2g}"),
        {"relative": relative, "hessian_u": smallest, "constant": constant},
    )


def _strictness(
    network: DiagonalNetwork, stage: Stage, radius: float
) -> tuple[float, float, float]:
    """Smallest eigenvalue relative to the largest, itself, and c_k."""
    if not stage.converged:
        return math.nan, math.nan, math.nan
    support = list(stage.support)
    if not support:
        return math.inf, math.inf, math.inf
    sign, u = stage.z[support].sgn(), stage.u[support]
    drive = network.g(stage.z)[support]
    hessian = network.hessian(stage.z, support)[support]
    values, vectors = torch.linalg.eigh(hessian_in_u(stage.z[support], drive, hessian))

    def rise(step: Tensor) -> float:
        z = stage.z.clone()
        z[support] = sign * (u + step).square()
        return (network.loss(z) - network.loss(stage.z)) / radius**2

    constant = min(rise(way * radius * vector) for vector in vectors.T for way in (1, -1))
    return float(values[0] / values.abs().max()), float(values[0]), constant


def check_noise_robustness(
    network: DiagonalNetwork,
    stages: Sequence[Stage],
    *,
    generator: torch.Generator,
    std: float = 1e-2,
    draws: int = 4,
    close: float = 1e-2,
) -> Check:
    """Assumption 4.4: from near theta^k, with the winner begun, training ends at theta^{k+1}.

    Each draw adds Gaussian noise to u^k on its support and starts the winner at |noise|, then
    follows the balanced flow of (u, s u). The value is the largest distance of an end u from
    u^{k+1}, relative to it; details: `reached`, that of each stage by its own number.
    """
    reached = [0.0]
    for before, after in pairwise(stages):
        if not after.converged:
            reached.append(math.nan)
            continue
        ends = [_noisy_end(network, before, after, std, generator) for _ in range(draws)]
        size = max(float(after.u.norm()), std)
        reached.append(max(float((end - after.u).norm()) / size for end in ends))
    faults = [
        f"noise leads elsewhere than stage {k}" for k, d in enumerate(reached) if not d <= close
    ]
    value = max(reached, key=_worst)
    return Check(
        not faults,
        value,
        close,
        _sentence("4.4", faults, f"ends within {value:.2g} of the next stage"),
        {"reached": tuple(reached)},
    )


def _noisy_end(
    network: DiagonalNetwork, before: Stage, after: Stage, std: float, generator: torch.Generator
) -> Vector:
    """|u| at the end of the balanced flow from noisy weights."""
    assert after.winner is not None
    sign = before.z.sgn()
    sign[after.winner] = after.sign
    noise = std * torch.randn(network.p, generator=generator, dtype=torch.float64)
    u = torch.where(sign != 0, (before.u + noise).abs(), 0.0)
    start = _balanced(sign * u.square())
    # Until the winner has grown from its noise, then many relaxations of the slowest direction.
    drive = abs(after.drive)
    relaxation = max(after.certificate.hessian_u / 2, 1e-3 * drive)
    growth = math.log(max(1.0, float(after.u.max()) / float(u[after.winner]))) / drive
    until = 2 * (growth + 10 / drive + 10 / relaxation)
    times = torch.tensor([0.0, until], dtype=torch.float64)
    end = continued(network, start, -1.0, times, tolerance=ROUGH)
    return start.z(end.y[-1]).abs().sqrt() if end.finished else torch.full_like(u, torch.nan)


def _balanced(z: Vector) -> Reduction:
    """(u, s u) with u^2 = |z|; what is zero stays there, what falls does not change its sign."""
    log_c = torch.full_like(z, BALANCED)
    # z = (c/2) sinh 2y, which is e^{2y} c/4 unless z is 0
    y = torch.where(z == 0, 0.0, (4 * z.abs()).log() - log_c) / 2
    return Reduction(log_c, z.sgn() * y, z > torch.inf, torch.ones_like(z))


def check_return_to_rest(
    network: DiagonalNetwork,
    stages: Sequence[Stage],
    time: float,
    *,
    generator: torch.Generator,
    std: float = 0.05,
    bound: float = 0.05,
) -> Check:
    """The paper's test of 4.3 as alpha -> 0: noise on theta^k, all else at zero, is gone in `time`.

    At any alpha above 0 other coordinates become active meanwhile, in a perturbed run a little
    earlier or later; here they cannot. `time` is not rescaled. The value is the largest share of
    the noise's |change of z| that is left; details: `independent` and `tied`, of each stage.
    """
    shares: dict[Noise, list[float]] = {
        noise: [_share_left(network, stage, time, noise, std, generator) for stage in stages]
        for noise in NOISES
    }
    faults = [
        f"{noise} noise at stage {k} is still at {share:.2g} of its size"
        for noise, found in shares.items()
        for k, share in enumerate(found)
        if not share <= bound
    ]
    value = max((each for found in shares.values() for each in found), key=_worst)
    return Check(
        not faults,
        value,
        bound,
        _sentence("4.3", faults, f"noise falls to {value:.2g} of its size or less"),
        {noise: tuple(found) for noise, found in shares.items()},
    )


def _share_left(
    network: DiagonalNetwork,
    stage: Stage,
    time: float,
    noise: Noise,
    std: float,
    generator: torch.Generator,
) -> float:
    if not stage.converged:
        return math.nan
    if not stage.support:
        return 0.0
    start, _ = perturbed(_balanced(stage.z), noise=noise, std=std, generator=generator)
    times = torch.tensor([0.0, time], dtype=torch.float64)
    path = continued(network, start, -1.0, times, tolerance=ROUGH)
    if not path.finished:
        return math.nan
    first, *_, last = start.z(path.y)
    return float((last - stage.z).norm() / (first - stage.z).norm())


def check_returns(trials: Sequence[Trial], *, bound: float = 0.05) -> Check:
    """The paper's test of 4.3 and 4.4: each perturbed run ends where the other does.

    The value is the largest distance in z at the end relative to that just after the perturbation.
    Details: that `share` of each trial, and `share_all`, over all coordinates.
    """
    shares = [float(t.distance[-1] / t.distance[0]) for t in trials]
    all_shares = [float(t.distance_all[-1] / t.distance_all[0]) for t in trials]
    faults = [
        f"{t.noise} noise at time {t.start_time:.3g} ({t.kind}) is still at {share:.2g} of its size"
        for t, share in zip(trials, shares, strict=True)
        if not share <= bound
    ]
    return Check(
        not faults,
        max(shares),
        bound,
        _sentence("4.3 and 4.4", faults, f"noise falls to {max(shares):.2g} of its size or less"),
        {"share": tuple(shares), "share_all": tuple(all_shares)},
    )


def _worst(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _sentence(assumption: str, faults: Sequence[str], otherwise: str) -> str:
    if not faults:
        return f"Assumption {assumption} holds: {otherwise}"
    more = f", and {len(faults) - 3} more" if len(faults) > 3 else ""
    return f"Assumption {assumption} fails: {'; '.join(faults[:3])}{more}"
