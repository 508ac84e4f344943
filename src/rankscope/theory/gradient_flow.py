"""Gradient flow of a diagonal network from a small start (boix2023, Eq. 3-6)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import DenseOutput
from scipy.optimize import brentq
from torch import Tensor

from rankscope.theory.fields import Field, LogField, WeightField
from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.reduction import LARGEST, Reduction
from rankscope.theory.trajectory import Crossing, Trajectory, counted

Vector = Float[Tensor, " p"]

# Recorded within each step of the solver, since a transition may be only ten steps long.
POINTS_PER_STEP = 4


def flow(
    network: DiagonalNetwork,
    u0: Vector,
    v0: Vector,
    log_alpha: float | int,
    until: float | int,
    *,
    coordinates: Literal["y", "uv"] = "y",
    times: Float[Tensor, " time"] | None = None,
    threshold: float = 1e-2,
    stop_after: int | None = None,
    tolerance: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Trajectory:
    """Gradient flow from exp(log_alpha) (u0, v0) until the rescaled time t / log(1/alpha) = until.

    log_alpha: natural logarithm, so that -1000 * log(10) is as good as -8 * log(10).
    coordinates: "y" never underflows, and its cost hardly grows as alpha falls; "uv" integrates
        the weights themselves, for moderate alpha.
    times: rescaled times to record; the solver's own steps and points between them unless given.
    threshold: a coordinate is active when |z| is above it; crossings are found to rounding.
    stop_after: stop once so many coordinates have become active.
    tolerance: local error in y (1e-3 unless given; rescaled times are then good to a few times
        1e-3 / log(1/alpha) / |g|), or relative error of u and v (1e-11).
    """
    reduction = Reduction.of(u0, v0, float(log_alpha))
    if len(u0) != network.p:
        raise ValueError(f"u0 has {len(u0)} entries, the network {network.p} coordinates")
    if not 0 < until < np.inf:
        raise ValueError(f"until is {until:g}; it is a rescaled time, above 0 and finite")
    if coordinates not in ("y", "uv"):
        raise ValueError(f"coordinates is {coordinates!r}; choose 'y' or 'uv'")
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold:g}; it is a size of z and should be above 0")
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"tolerance is {tolerance:g}; it should be above 0")
    if times is not None and not _increasing(times, float(until)):
        raise ValueError("times should be increasing numbers between 0 and `until`, at least one")
    system: Field = (
        LogField(network, reduction, float(log_alpha))
        if coordinates == "y"
        else WeightField(network, reduction, float(log_alpha))
    )
    tolerance = tolerance or (1e-3 if coordinates == "y" else 1e-11)
    march = March(system, threshold=threshold, times=None if times is None else times.numpy())
    finished, message = march.go(
        float(until), tolerance=tolerance, stop_after=stop_after, progress=progress
    )
    return _trajectory(network, march, float(log_alpha), finished, message)


@dataclass
class March:
    """The solver's steps, what was recorded on the way, and the crossings met."""

    system: Field
    threshold: float
    times: np.ndarray | None
    recorded: list[tuple[float, np.ndarray]] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)
    last: tuple[float, np.ndarray] | None = None

    def go(
        self,
        until: float,
        *,
        tolerance: float,
        stop_after: int | None,
        progress: Callable[[float], None] | None,
    ) -> tuple[bool, str]:
        """March to the end; whether it was reached, and a sentence on what happened."""
        system = self.system
        solver = system.solver(until, tolerance)
        self._begin(system.start)
        largest = system.levels(LARGEST / 100)
        while solver.status == "running":
            self.last = (float(solver.t), solver.y)
            solver.max_step = system.longest_step(solver.y)
            before = solver.y
            problem = solver.step()
            if problem is not None:
                return False, (
                    f"the solver could not go on at time {solver.t:g} ({problem}); "
                    "what came before is kept: try a smaller tolerance"
                )
            self._record(solver.dense_output(), before, solver.y)
            if progress is not None:
                progress(solver.t / until)
            if (system.heights(solver.y) > largest).any():
                return False, (
                    f"|z| passed {LARGEST / 100:g} at time {solver.t:g}: the loss has no finite "
                    "minimiser; what came before is kept: give the network a decay"
                )
            if stop_after is not None and len(self._active()) >= stop_after:
                break
        return True, f"{counted(len(self._active()))} became active by time {solver.t:g}"

    def _begin(self, state: np.ndarray) -> None:
        if self.times is None or self.times[0] == 0:
            self.recorded.append((0.0, state))
        levels = self.system.levels(self.threshold)
        for i in np.flatnonzero(self.system.heights(state) >= levels):
            self._cross(int(i), 0.0, state, entered=True)

    def _record(self, path: DenseOutput, before: np.ndarray, after: np.ndarray) -> None:
        if self.times is None:
            here = np.linspace(path.t_old, path.t, POINTS_PER_STEP + 1)[1:]
        else:
            here = self.times[(self.times > path.t_old) & (self.times <= path.t)]
        self.recorded += [(float(t), path(t)) for t in here]
        heights, levels = self.system.heights, self.system.levels(self.threshold)
        was, now = heights(before) >= levels, heights(after) >= levels
        found = [(self._when(path, int(i)), int(i)) for i in np.flatnonzero(was != now)]
        for time, i in sorted(found):
            self._cross(i, time, path(time), entered=bool(now[i]))

    def _when(self, path: DenseOutput, i: int) -> float:
        """The time at which coordinate i crosses the threshold within a step."""
        level = self.system.levels(self.threshold)[i]

        def above(time: float) -> float:
            return float(self.system.heights(path(time))[i] - level)

        # Between the step's ends the path is an interpolation, which may miss them by rounding.
        if above(path.t_old) * above(path.t) >= 0:
            return float(path.t)
        return float(brentq(above, path.t_old, path.t))

    def _cross(self, i: int, time: float, state: np.ndarray, *, entered: bool) -> None:
        sign = int(self.system.z(state[None])[0, i].sign())
        self.crossings.append(Crossing(i, time, entered, sign))

    def _active(self) -> set[int]:
        return {crossing.coordinate for crossing in self.crossings if crossing.entered}


def _increasing(times: Float[Tensor, " time"], until: float) -> bool:
    inside = len(times) > 0 and float(times[0]) >= 0 and float(times[-1]) <= until
    return inside and bool((times.diff() > 0).all())


def _trajectory(
    network: DiagonalNetwork, march: March, log_alpha: float, finished: bool, message: str
) -> Trajectory:
    system = march.system
    # A flow that ends before the first of `times` still has an end to show.
    recorded = march.recorded or [march.last or (0.0, system.start)]
    states = np.stack([state for _, state in recorded])
    u, v = system.weights(states)
    z = system.z(states)
    return Trajectory(
        time=torch.tensor([time for time, _ in recorded], dtype=torch.float64),
        z=z,
        y=system.y(states),
        u=u,
        v=v,
        loss=torch.tensor([network.loss(each) for each in z], dtype=torch.float64),
        log_alpha=log_alpha,
        crossings=tuple(march.crossings),
        gradient_evaluations=system.evaluations,
        finished=finished,
        message=message,
    )
