"""Plain gradient descent and SGD on (u, v), as the papers trained, to compare with the flow."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
    """Take `steps` steps of size `rate` from alpha (u0, v0), in float64.

    Time is steps x rate / log(1/alpha), as that of the flow. One step changes u^2 - v^2 by exactly
    the factor 1 - rate^2 g^2, where the flow conserves it. Crossings are interpolated between
    steps, evenly in log |z|.

    every: steps between two records; the last step is always recorded.
    batch: samples per step, drawn without replacement in each pass by `generator`; all by default.
    threshold: a coordinate is active when |z| is above it.
    stop_after: stop once so many coordinates have become active.
    progress: called with the share of the steps that is done.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha:g}; it should be between 0 and 1")
    if not rate > 0 or steps < 1 or every < 1:
        raise ValueError(f"rate is {rate:g}, steps {steps}, every {every}; all should be above 0")
    if len(u0) != network.p:
        raise ValueError(f"u0 has {len(u0)} entries, the network {network.p} coordinates")
    batches = _batches(network, batch, generator)
    log_alpha = math.log(alpha)
    reduction = Reduction.of(u0, v0, log_alpha)
    path = _Path(alpha * u0.double(), alpha * v0.double(), rate, rate / -log_alpha, threshold)
    message = ""
    for step in range(1, steps + 1):
        path.take_step(next(batches))
        if not path.is_finite:
            message = f"diverged at step {step}; what came before is kept: lower the rate"
            break
        done = step == steps or (stop_after is not None and path.active_count >= stop_after)
        if step % every == 0 or done:
            path.record()
            if progress is not None:
                progress(step / steps)
        if done:
            break
    return path.trajectory(network, reduction, log_alpha, message)


def _batches(
    network: DiagonalNetwork, size: int | None, generator: torch.Generator | None
) -> Iterator[DiagonalNetwork]:
    """Return the network on a batch for each step, or on all samples if there is no size."""
    if size is None:
        return itertools.repeat(network)
    if generator is None:
        raise ValueError("SGD draws its batches: pass a torch.Generator as generator")
    return network.batches(size, generator)


@dataclass
class _Path:
    """Weights that descend step by step, with their records and crossings so far."""

    u: Vector
    v: Vector
    rate: float
    time_per_step: float
    threshold: float
    steps: int = 0
    recorded: list[tuple[float, Vector, Vector]] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.z = self.u * self.v
        active = (self.z.abs() >= self.threshold).nonzero().flatten().tolist()
        self.crossings += [Crossing(i, 0.0, True, int(self.z[i].sign())) for i in active]
        self.record()

    @property
    def is_finite(self) -> bool:
        return bool(self.z.isfinite().all())

    @property
    def active_count(self) -> int:
        """Number of coordinates that have become active."""
        return len({crossing.coordinate for crossing in self.crossings if crossing.entered})

    def take_step(self, network: DiagonalNetwork) -> None:
        """Descend along the gradient of the network's loss."""
        u, v, g = self.u, self.v, network.g(self.z)
        self.u, self.v = u + self.rate * v * g, v + self.rate * u * g
        before, self.z = self.z, self.u * self.v
        start = self.steps * self.time_per_step
        self.crossings += _crossings(before, self.z, self.threshold, start, self.time_per_step)
        self.steps += 1

    def record(self) -> None:
        self.recorded.append((self.steps * self.time_per_step, self.u, self.v))

    def trajectory(
        self, network: DiagonalNetwork, reduction: Reduction, log_alpha: float, message: str
    ) -> Trajectory:
        """Return the recorded path; a `message` means that it did not finish."""
        u = torch.stack([u for _, u, _ in self.recorded])
        v = torch.stack([v for _, _, v in self.recorded])
        z = u * v
        summary = f"{counted(self.active_count)} became active in {self.steps} steps"
        return Trajectory(
            time=torch.tensor([time for time, _, _ in self.recorded], dtype=torch.float64),
            z=z,
            y=reduction.y_at(z),
            u=u,
            v=v,
            loss=torch.tensor([network.loss(row) for row in z], dtype=torch.float64),
            log_alpha=log_alpha,
            crossings=tuple(self.crossings),
            gradient_evaluations=self.steps,
            finished=not message,
            message=message or summary,
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
