"""Plain gradient descent and SGD on (u, v), as the papers trained, to compare with the flow."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.reduction import Reduction
from rankscope.theory.trajectory import Crossing, Trajectory, counted

Vector = Float[Tensor, " p"]


def descend(
    network: DiagonalNetwork,
    u0: Vector,
    v0: Vector,
    alpha: float,
    *,
    rate: float,
    steps: int,
    every: int = 1,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    threshold: float = 1e-2,
    stop_after: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Trajectory:
    """`steps` steps of size `rate` from alpha (u0, v0) in float64; each `every`-th is recorded.

    Its time is steps x rate / log(1/alpha), the flow's. One step changes u^2 - v^2 by exactly the
    factor 1 - rate^2 g^2, where the flow keeps it.
    batch: samples per step, drawn without replacement in each pass by `generator`; all of them
        unless given.
    Crossings are interpolated between steps, evenly in log |z|.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha:g}; it should be between 0 and 1")
    if not rate > 0 or steps < 1 or every < 1:
        raise ValueError(f"rate is {rate:g}, steps {steps}, every {every}; all should be above 0")
    if len(u0) != network.p:
        raise ValueError(f"u0 has {len(u0)} entries, the network {network.p} coordinates")
    if batch is not None and generator is None:
        raise ValueError("SGD draws its batches: give a torch.Generator")
    reduction = Reduction.of(u0, v0, math.log(alpha))
    u, v = alpha * u0.double(), alpha * v0.double()
    unit = rate / -math.log(alpha)
    batches = None if batch is None or generator is None else network.batches(batch, generator)
    z = u * v
    crossings = [
        Crossing(i, 0.0, True, int(z[i].sign()))
        for i in (z.abs() >= threshold).nonzero().flatten().tolist()
    ]
    recorded = [(0.0, u, v)]
    message = ""
    step = 0
    for step in range(1, steps + 1):
        part = network if batches is None else next(batches)
        g = part.g(z)
        u, v = u + rate * v * g, v + rate * u * g
        before, z = z, u * v
        crossings += _crossings(before, z, threshold, (step - 1) * unit, unit)
        if not bool(z.isfinite().all()):
            message = f"diverged at step {step}; what came before is kept: lower the rate"
            break
        active = len({crossing.coordinate for crossing in crossings if crossing.entered})
        done = step == steps or (stop_after is not None and active >= stop_after)
        if step % every == 0 or done:
            recorded.append((step * unit, u, v))
            if progress is not None:
                progress(step / steps)
        if done:
            break
    return _trajectory(network, reduction, recorded, crossings, math.log(alpha), step, message)


def _crossings(
    before: Vector, after: Vector, threshold: float, start: float, unit: float
) -> list[Crossing]:
    was, now = before.abs() >= threshold, after.abs() >= threshold
    found = []
    for i in (was != now).nonzero().flatten().tolist():
        low, high = float(before[i].abs()), float(after[i].abs())
        share = math.log(threshold / low) / math.log(high / low) if low > 0 and high > 0 else 1.0
        found.append(Crossing(i, start + share * unit, bool(now[i]), int(after[i].sign())))
    return sorted(found, key=lambda crossing: crossing.time)


def _trajectory(
    network: DiagonalNetwork,
    reduction: Reduction,
    recorded: list[tuple[float, Vector, Vector]],
    crossings: list[Crossing],
    log_alpha: float,
    steps: int,
    message: str,
) -> Trajectory:
    u = torch.stack([u for _, u, _ in recorded])
    v = torch.stack([v for _, _, v in recorded])
    z = u * v
    active = len({crossing.coordinate for crossing in crossings if crossing.entered})
    return Trajectory(
        time=torch.tensor([time for time, _, _ in recorded], dtype=torch.float64),
        z=z,
        y=reduction.y_at(z),
        u=u,
        v=v,
        loss=torch.tensor([network.loss(each) for each in z], dtype=torch.float64),
        log_alpha=log_alpha,
        crossings=tuple(crossings),
        gradient_evaluations=steps,
        finished=not message,
        message=message or f"{counted(active)} became active in {steps} steps",
    )
