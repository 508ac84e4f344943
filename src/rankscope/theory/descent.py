"""Plain gradient descent on (u, v), as the papers trained, to compare with the flow."""

import math

import torch

from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.reduction import Reduction
from rankscope.theory.trajectory import Crossing, Trajectory, active, counted


def descend(
    network: DiagonalNetwork,
    u0: Vector,
    v0: Vector,
    alpha: float,
    *,
    rate: float,
    steps: int,
    every: int = 1,
    threshold: float = 1e-2,
    stop_after: int | None = None,
) -> Trajectory:
    """Take `steps` steps of size `rate` from alpha (u0, v0), in float64.

    Time is steps x rate / log(1/alpha), as that of the flow. One step changes u^2 - v^2 by exactly
    the factor 1 - rate^2 g^2, where the flow conserves it. Crossings are interpolated between
    steps, evenly in log |z|.

    every: steps between two records; the last step is always recorded.
    threshold: a coordinate is active when |z| is above it.
    stop_after: stop once so many coordinates have become active.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha:g}; it should be between 0 and 1")
    if not rate > 0 or steps < 1 or every < 1:
        raise ValueError(f"rate is {rate:g}, steps {steps}, every {every}; all should be above 0")
    if len(u0) != network.p:
        raise ValueError(f"u0 has {len(u0)} entries, the network {network.p} coordinates")
    log_alpha = math.log(alpha)
    reduction = Reduction.of(u0, v0, log_alpha)
    time_per_step = rate / -log_alpha
    u, v = alpha * u0.double(), alpha * v0.double()
    z = u * v
    records = [(0.0, u, v)]
    crossings = _crossings(torch.zeros_like(z), z, threshold, 0.0, 0.0)
    message = ""
    for step in range(1, steps + 1):
        g, before = network.g(z), z
        u, v = u + rate * v * g, v + rate * u * g
        z = u * v
        crossings += _crossings(before, z, threshold, (step - 1) * time_per_step, time_per_step)
        if not bool(z.isfinite().all()):
            message = f"diverged at step {step}; what came before is kept: lower the rate"
            break
        done = step == steps or (stop_after is not None and len(active(crossings)) >= stop_after)
        if step % every == 0 or done:
            records.append((step * time_per_step, u, v))
        if done:
            break
    times, us, vs = zip(*records, strict=True)
    z = torch.stack(us) * torch.stack(vs)
    return Trajectory(
        time=torch.tensor(times, dtype=torch.float64),
        z=z,
        y=reduction.y_at(z),
        u=torch.stack(us),
        v=torch.stack(vs),
        loss=torch.tensor([network.loss(row) for row in z], dtype=torch.float64),
        log_alpha=log_alpha,
        crossings=tuple(crossings),
        gradient_evaluations=step,
        finished=not message,
        message=message or f"{counted(len(active(crossings)))} became active in {step} steps",
    )


def _crossings(
    before: Vector, after: Vector, threshold: float, start: float, duration: float
) -> list[Crossing]:
    """Return the crossings within one step, by time."""
    was_active, is_active = before.abs() >= threshold, after.abs() >= threshold
    crossings = []
    for i in (was_active != is_active).nonzero().flatten().tolist():
        low, high = float(before[i].abs()), float(after[i].abs())
        share = math.log(threshold / low) / math.log(high / low) if low > 0 and high > 0 else 1.0
        time = start + share * duration
        crossings.append(Crossing(i, time, bool(is_active[i]), int(after[i].sign())))
    return sorted(crossings, key=lambda crossing: crossing.time)
