"""Assumptions 4.2-4.4 of boix2023's Theorem 4.5, checked directly on the stages of Algorithm 1.

The paper tests 4.3 and 4.4 by perturbing a run and training on (`theory.perturbation`).
`check_returns` judges such trials; `check_return_to_rest` is their limit as alpha -> 0.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rankscope.theory.algorithm import Stage, hessian_in_u
from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.perturbation import NOISES, Noise, Trial, continued, perturbed
from rankscope.theory.reduction import Reduction

# log(u^2 - v^2) of weights that count as balanced: no flow brings anything that small back up.
BALANCED = -1e4

# Local error in y; on the way to an attracting point, errors heal.
ROUGH = 1e-3


@dataclass(frozen=True)
class Check:
    """Result of checking one assumption.

    value: the worst number measured. It should be above `bound`; a distance at most `bound`.
    details: numbers by kind, one for every stage or trial.
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
    """Check Assumption 4.2: |u0| != |v0|, one winner in each stage, no zero drive after leaving.

    The value is the smallest margin of a winner, relative to the time it won at. Details, for each
    stage:

    margin: rescaled time by which the winner came first.
    relative_margin: the same, relative to the time it won at.
    left_drive: smallest |g_i| of the coordinates that just left the support, relative to the
        largest drive at zero; infinite if none left.
    """
    scale = float(network.g(torch.zeros_like(stages[0].z)).abs().max())
    margins = [stage.margin for stage in stages]
    relative = [stage.margin / stage.time if stage.time > 0 else math.inf for stage in stages]
    left = [
        min(network.g(stage.z)[list(stage.left)].abs().tolist(), default=math.inf) / (scale or 1.0)
        for stage in stages
    ]
    faults = ["|u0| = |v0| in some coordinate"] if bool((u0.abs() == v0.abs()).any()) else []
    faults += [
        f"stage {k} has no unique winner" for k, margin in enumerate(relative) if not margin > tie
    ]
    faults += [
        f"a coordinate that left in stage {k} has no drive"
        for k, drive in enumerate(left)
        if drive < tie
    ]
    value = min(relative)
    success = f"winners by at least {value:.2g} of the time they won at"
    return _check(
        "4.2",
        faults,
        value,
        tie,
        success,
        margin=margins,
        relative_margin=relative,
        left_drive=left,
    )


def check_strict_minima(
    network: DiagonalNetwork,
    stages: Sequence[Stage],
    *,
    radius: float = 0.05,
    flat: float = 1e-9,
) -> Check:
    """Check Assumption 4.3: theta^k is a strict local minimum of u -> L(u, s u) on its support.

    The value is the smallest eigenvalue of that function's Hessian relative to the largest, at the
    worst stage; below `flat` rounding may have made it. Details, for each stage:

    relative: smallest eigenvalue relative to the largest.
    hessian_u: smallest eigenvalue.
    constant: the assumption's c_k at distance `radius`, the least of
        (L(u~, s u~) - L(theta^k)) / |u~ - u^k|^2 over steps both ways along each eigenvector. (The
        paper prints it without L(theta^k).) At a small distance c_k is half of hessian_u.
    """
    strictness = [_strictness(network, stage, radius) for stage in stages]
    relative, smallest, constant = zip(*strictness, strict=True)
    faults = [
        f"stage {k} does not rest at a strict minimum"
        for k, eigenvalue in enumerate(relative)
        if not eigenvalue > flat
    ]
    value = float(np.min(relative))  # NaN if any is
    success = f"smallest eigenvalue {min(smallest):.2g}"
    details = {"relative": relative, "hessian_u": smallest, "constant": constant}
    return _check("4.3", faults, value, flat, success, **details)


def _strictness(
    network: DiagonalNetwork, stage: Stage, radius: float
) -> tuple[float, float, float]:
    """Return the smallest eigenvalue relative to the largest, the smallest itself, and c_k."""
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
    """Check Assumption 4.4: from near theta^k, with the winner begun, training ends at theta^{k+1}.

    Each draw adds Gaussian noise to u^k on its support and starts the winner at |noise|, then
    follows the balanced flow of (u, s u). The value is the largest distance of an end u from
    u^{k+1}, relative to |u^{k+1}|. Details: `reached`, the largest distance from each stage's u.
    """
    reached = [0.0]
    for before, after in itertools.pairwise(stages):
        if not after.converged:
            reached.append(math.nan)
            continue
        ends = [_noisy_end(network, before, after, std, generator) for _ in range(draws)]
        size = max(float(after.u.norm()), std)
        reached.append(max(float((end - after.u).norm()) / size for end in ends))
    faults = [
        f"noise leads elsewhere than stage {k}"
        for k, distance in enumerate(reached)
        if not distance <= close
    ]
    value = float(np.max(reached))
    success = f"ends within {value:.2g} of the next stage"
    return _check("4.4", faults, value, close, success, reached=reached)


def _noisy_end(
    network: DiagonalNetwork, before: Stage, after: Stage, std: float, generator: torch.Generator
) -> Vector:
    """Return |u| at the end of the balanced flow from noisy weights."""
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
    y, march = continued(network, start, -1.0, times, tolerance=ROUGH)
    return start.z(y[-1]).abs().sqrt() if march.finished else torch.full_like(u, torch.nan)


def _balanced(z: Vector) -> Reduction:
    """Return the state (u, s u) with u^2 = |z|: zeros stay zero, and no z changes its sign."""
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
    """Check that noise on theta^k is gone after `time`: the paper's test of 4.3 as alpha -> 0.

    All other coordinates are at zero and stay there. At any alpha above 0 some become active
    meanwhile, a little earlier or later in a perturbed run. `time` is not rescaled. The value is
    the largest share that is left of the noise's |change of z|. Details: this share at each stage,
    as `independent` and `tied` by the kind of noise.
    """
    shares_by_noise = {
        noise: [_share_left(network, stage, time, noise, std, generator) for stage in stages]
        for noise in NOISES
    }
    faults = [
        f"{noise} noise at stage {k} is still at {share:.2g} of its size"
        for noise, shares in shares_by_noise.items()
        for k, share in enumerate(shares)
        if not share <= bound
    ]
    value = float(np.max([*shares_by_noise.values()]))
    success = f"noise falls to {value:.2g} of its size or less"
    return _check("4.3", faults, value, bound, success, **shares_by_noise)


def _share_left(
    network: DiagonalNetwork,
    stage: Stage,
    time: float,
    noise: Noise,
    std: float,
    generator: torch.Generator,
) -> float:
    """Return the share of the noise that is left after `time`."""
    if not stage.converged:
        return math.nan
    if not stage.support:
        return 0.0
    start, _ = perturbed(_balanced(stage.z), noise=noise, std=std, generator=generator)
    times = torch.tensor([0.0, time], dtype=torch.float64)
    y, march = continued(network, start, -1.0, times, tolerance=ROUGH)
    if not march.finished:
        return math.nan
    first, *_, last = start.z(y)
    return float((last - stage.z).norm() / (first - stage.z).norm())


def check_returns(trials: Sequence[Trial], *, bound: float = 0.05) -> Check:
    """Check that each perturbed run ends where the unperturbed does: the paper's test of 4.3, 4.4.

    The value is the largest distance in z at the end, relative to that just after the perturbation.
    Details, for each trial: this ratio as `share`, and over all coordinates as `share_all`.
    """
    shares = [float(trial.distance[-1] / trial.distance[0]) for trial in trials]
    all_shares = [float(trial.distance_all[-1] / trial.distance_all[0]) for trial in trials]
    faults = [
        f"{trial.noise} noise at time {trial.start_time:.3g} ({trial.kind}) is still at "
        f"{share:.2g} of its size"
        for trial, share in zip(trials, shares, strict=True)
        if not share <= bound
    ]
    value = max(shares)
    success = f"noise falls to {value:.2g} of its size or less"
    return _check("4.3 and 4.4", faults, value, bound, success, share=shares, share_all=all_shares)


def _check(
    assumption: str,
    faults: Sequence[str],
    value: float,
    bound: float,
    success: str,
    **details: Sequence[float],
) -> Check:
    """Return a check that holds if there are no faults, with a sentence on up to three of them."""
    sentence = f"Assumption {assumption} holds: {success}"
    if faults:
        more = f", and {len(faults) - 3} more" if len(faults) > 3 else ""
        sentence = f"Assumption {assumption} fails: {'; '.join(faults[:3])}{more}"
    numbers = {kind: tuple(values) for kind, values in details.items()}
    return Check(not faults, value, bound, sentence, numbers)
