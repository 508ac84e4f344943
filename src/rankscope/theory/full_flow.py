"""Training of a head with full matrices from a small start: boix2023 section 5, figure 3 d-f.

Gradient flow or gradient descent starts at alpha * weights0. Time is rescaled, t / log(1 / alpha).
The singular values of W_K W_Q^T and W_V W_O^T are taken from the factors.
"""

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import RK45
from torch import Tensor

from rankscope.matrices import Product
from rankscope.spectra import singular_values
from rankscope.theory.full_head import FullHead, Weights
from rankscope.theory.gauge import overlap, separated

# |cosine| between two inner columns above which we choose a new basis. One more step would not
# bring it much nearer to 1.
CROWDED = 0.9


@dataclass(frozen=True, eq=False)
class FullTrajectory:
    """Path of a head through training.

    singular_values: those of W_K W_Q^T, then those of W_V W_O^T.
    weights: the last ones. The flow rotates their inner basis (W_K R, W_Q R), which does not change
        the head; descent leaves it alone.
    finished: whether the path came to its end; `message` says in a sentence what happened.
    """

    time: Float[Tensor, " time"]
    loss: Float[Tensor, " time"]
    singular_values: Float[Tensor, "time 2 k"]
    weights: Weights
    log_alpha: float
    gradient_evaluations: int
    finished: bool
    message: str


def flow_full(
    head: FullHead,
    weights0: Weights,
    log_alpha: float | int,
    until: float | int,
    *,
    points: int = 800,
    tolerance: float = 1e-4,
    stop_below: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> FullTrajectory:
    """Follow the gradient flow of all four matrices from alpha * weights0 to rescaled time `until`.

    The solver is Runge-Kutta 5(4). It works in an inner basis (`theory.gauge`) in which directions
    that have not risen survive the rounding of those that have; otherwise rises would be off from
    alpha = 1e-16 on.

    log_alpha: natural logarithm. The number of gradients grows in proportion to it.
    points: number of recorded times, evenly spaced between 0 and `until`.
    tolerance: relative error of a step; 1e-4 places half-rise times to 1e-4 of a rise's width.
    stop_below: stop once the loss is below this share of the first one. Once all is learned, only
        stability limits the solver's step, and the way to `until` costs more than all before.
    progress: called with the share of `until` that is done.
    """
    if not (until > 0 and math.isfinite(until)):
        raise ValueError(f"until: expected a rescaled time above 0, got {until}")
    if points < 2:
        raise ValueError(f"points: expected at least 2 recorded times, got {points}")
    start = _start(head, weights0, float(log_alpha))
    slope = _Field(head, tuple(start.shape), speed=-float(log_alpha))
    log = _Log(float(log_alpha))
    times = np.linspace(0.0, float(until), points)
    log.add(0.0, head.loss(start), start)
    for time, weights in _march(slope, start, times, tolerance):
        log.add(time, head.loss(weights), weights)
        if progress is not None:
            progress(time / until)
        if log.loss[-1] <= stop_below * log.loss[0]:
            message = f"the loss fell below {stop_below:g} of the first one at time {time:g}"
            return log.trajectory(slope.evaluations, finished=True, message=message)
    if log.time[-1] < until:
        message = (
            f"the solver could not go on after time {log.time[-1]:g} of {until:g}; what came "
            "before is kept: try a smaller tolerance, or targets of a smaller scale"
        )
        return log.trajectory(slope.evaluations, finished=False, message=message)
    message = f"reached time {until:g}"
    return log.trajectory(slope.evaluations, finished=True, message=message)


def descend_full(
    head: FullHead,
    weights0: Weights,
    alpha: float,
    *,
    rate: float,
    steps: int,
    every: int = 1,
) -> FullTrajectory:
    """Take gradient descent steps from alpha * weights0, as the paper trained.

    Time is rate * step, rescaled.

    every: steps between two records; the last step is always recorded.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: expected a scale between 0 and 1, got {alpha:g}")
    if not (rate > 0 and steps >= 1 and every >= 1):
        raise ValueError(
            "descend_full: expected rate above 0, steps and every of at least 1, got "
            f"rate={rate:g}, steps={steps}, every={every}"
        )
    log_alpha = math.log(alpha)
    weights = _start(head, weights0, log_alpha)
    log = _Log(log_alpha)
    for step in range(steps + 1):
        loss, gradient, _ = head.derivatives(weights)
        if not math.isfinite(loss):
            message = f"the loss is not finite after step {step}; try a rate below {rate:g}"
            return log.trajectory(step + 1, finished=False, message=message)
        if step % every == 0 or step == steps:
            log.add(rate * step / -log_alpha, loss, weights)
        if step < steps:
            weights = weights - rate * gradient
    return log.trajectory(steps + 1, finished=True, message=f"took {steps} steps")


def _start(head: FullHead, weights0: Weights, log_alpha: float) -> Weights:
    """Return alpha * weights0, or refuse what no training can start from."""
    if not -math.inf < log_alpha < 0:
        raise ValueError(
            f"log_alpha: expected the natural logarithm of a scale between 0 and 1, so below 0, "
            f"got {log_alpha:g}"
        )
    if not weights0.isfinite().all():
        raise ValueError("weights0: expected finite numbers, got NaN or infinite ones")
    start = math.exp(log_alpha) * head.checked(weights0).detach()
    if start.square().amax() < sys.float_info.min / sys.float_info.epsilon:
        raise ValueError(
            f"weights0: at alpha = exp({log_alpha:g}) its products underflow to 0 and have no "
            "singular values; use alpha above 1e-140"
        )
    return start


@dataclass
class _Field:
    """Slope dW / d(rescaled time) for the solver; remembers the products' gradients there."""

    head: FullHead
    shape: tuple[int, ...]
    speed: float
    slopes: Float[Tensor, "2 d d"] | None = None
    evaluations: int = 0

    def __call__(self, time: float, flat: np.ndarray) -> np.ndarray:
        self.evaluations += 1
        _, gradient, self.slopes = self.head.derivatives(self.weights(flat))
        return -self.speed * gradient.numpy().ravel()

    def weights(self, flat: np.ndarray) -> Weights:
        return torch.from_numpy(flat).view(self.shape)

    def longest_step(self) -> float:
        """Return half the time in which a direction can grow e-fold.

        The solver's error is measured against the large directions. A direction that has not risen
        grows unseen, at most at the rate |dL/d(product)|_2, and the solver has to follow it too.
        """
        assert self.slopes is not None
        growth = self.speed * float(torch.linalg.matrix_norm(self.slopes, ord=2).max())
        return 0.5 / growth if growth > 0 else math.inf


def _march(
    slope: _Field, start: Weights, times: np.ndarray, tolerance: float
) -> Iterator[tuple[float, Weights]]:
    """Yield the weights at each of `times` after the first, until the solver ends or fails."""
    # The absolute error is relative to the start, or the first plateau would be lost in it.
    floor = tolerance * max(float(start.abs().max()), sys.float_info.min)
    solve = functools.partial(RK45, slope, t_bound=times[-1], rtol=tolerance, atol=floor)
    solver = solve(times[0], start.numpy().ravel())
    waiting = iter(times[1:])
    time = next(waiting)
    while solver.status == "running":
        solver.max_step = slope.longest_step()
        if solver.step() is not None:
            return
        between = solver.dense_output()
        while time <= solver.t:
            yield float(time), slope.weights(between(time))
            time = next(waiting, math.inf)
        factors = slope.weights(solver.y).view(2, -1, start.shape[-1])  # K over Q, V over O
        if solver.status == "running" and overlap(factors) > CROWDED:
            factors = torch.stack([separated(product) for product in factors])
            step = min(solver.h_abs, times[-1] - solver.t)
            solver = solve(solver.t, factors.numpy().ravel(), first_step=step)


@dataclass
class _Log:
    """Records of a trajectory as it grows."""

    log_alpha: float
    time: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    spectra: list[Tensor] = field(default_factory=list)
    weights: Weights = field(init=False)

    def add(self, time: float, loss: float, weights: Weights) -> None:
        self.time.append(time)
        self.loss.append(loss)
        self.spectra.append(singular_values(Product(left=weights[0::2], right=weights[1::2])))
        self.weights = weights

    def trajectory(self, evaluations: int, *, finished: bool, message: str) -> FullTrajectory:
        return FullTrajectory(
            time=torch.tensor(self.time, dtype=torch.float64),
            loss=torch.tensor(self.loss, dtype=torch.float64),
            singular_values=torch.stack(self.spectra),
            weights=self.weights.clone(),
            log_alpha=self.log_alpha,
            gradient_evaluations=evaluations,
            finished=finished,
            message=message,
        )
