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
from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.reduction import LARGEST, Reduction
from rankscope.theory.trajectory import Crossing, Trajectory, active, counted

# Recorded points within each step of the solver, since a transition may take only ten steps.
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
    """Follow the gradient flow from exp(log_alpha) (u0, v0) to the rescaled time `until`.

    Rescaled time is t / log(1/alpha).

    log_alpha: natural logarithm; -1000 * log(10) works as well as -8 * log(10).
    coordinates: "y" never underflows, and its cost hardly grows as alpha falls; "uv" integrates
        the weights themselves, for moderate alpha.
    times: rescaled times to record; by default the solver's own steps and points between them.
    threshold: a coordinate is active when |z| is above it; crossings are exact up to rounding.
    stop_after: stop once so many coordinates have become active.
    tolerance: local error in y, by default 1e-3, which makes rescaled times good to a few times
        1e-3 / log(1/alpha) / |g|; or relative error of u and v, by default 1e-11.
    progress: called with the share of `until` that is done.
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
    if times is not None and not (
        len(times) > 0 and times[0] >= 0 and times[-1] <= until and bool((times.diff() > 0).all())
    ):
        raise ValueError("times should be increasing numbers between 0 and `until`, at least one")
    make = LogField if coordinates == "y" else WeightField
    system: Field = make(network, reduction, float(log_alpha))
    march = March(system, threshold=threshold, times=None if times is None else times.numpy())
    march.go(
        float(until),
        tolerance=tolerance or (1e-3 if coordinates == "y" else 1e-11),
        stop_after=stop_after,
        progress=progress,
    )
    # A flow that ends before the first of `times` still has its last state.
    recorded = march.recorded or [march.last]
    states = np.stack([state for _, state in recorded])
    u, v = system.weights(states)
    z = system.z(states)
    return Trajectory(
        time=torch.tensor([time for time, _ in recorded], dtype=torch.float64),
        z=z,
        y=system.y(states),
        u=u,
        v=v,
        loss=torch.tensor([network.loss(row) for row in z], dtype=torch.float64),
        log_alpha=float(log_alpha),
        crossings=tuple(march.crossings),
        gradient_evaluations=system.evaluations,
        finished=march.finished,
        message=march.message,
    )


@dataclass
class March:
    """Steps of the solver through a field, with the records and crossings on the way.

    last: time and state before the last step.
    finished: whether the end was reached; `message` says in a sentence what happened.
    """

    system: Field
    threshold: float
    times: np.ndarray | None
    recorded: list[tuple[float, np.ndarray]] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)
    last: tuple[float, np.ndarray] = field(init=False)
    finished: bool = False
    message: str = ""

    def go(
        self,
        until: float,
        *,
        tolerance: float,
        stop_after: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """March to the end, or as far as the solver comes."""
        system = self.system
        solver = system.solver(until, tolerance)
        self._begin(system.start)
        largest = system.levels(LARGEST / 100)
        while solver.status == "running":
            before = solver.y
            self.last = (float(solver.t), before)
            solver.max_step = system.longest_step(before)
            problem = solver.step()
            if problem is not None:
                self.message = (
                    f"the solver could not go on at time {solver.t:g} ({problem}); "
                    "what came before is kept: try a smaller tolerance"
                )
                return
            self._record(solver.dense_output(), before, solver.y)
            if progress is not None:
                progress(solver.t / until)
            if (system.heights(solver.y) > largest).any():
                self.message = (
                    f"|z| passed {LARGEST / 100:g} at time {solver.t:g}: the loss has no finite "
                    "minimiser; what came before is kept: give the network a decay"
                )
                return
            if stop_after is not None and len(active(self.crossings)) >= stop_after:
                break
        self.finished = True
        self.message = f"{counted(len(active(self.crossings)))} became active by time {solver.t:g}"

    def _begin(self, state: np.ndarray) -> None:
        if self.times is None or self.times[0] == 0:
            self.recorded.append((0.0, state))
        levels = self.system.levels(self.threshold)
        for i in np.flatnonzero(self.system.heights(state) >= levels):
            self._cross(int(i), 0.0, state, entered=True)

    def _record(self, path: DenseOutput, before: np.ndarray, after: np.ndarray) -> None:
        """Record points within one step, and the crossings in it by time."""
        if self.times is None:
            # The last step may be as short as rounding, and points between its ends coincide.
            times = np.unique(np.linspace(path.t_old, path.t, POINTS_PER_STEP + 1))[1:]
        else:
            times = self.times[(self.times > path.t_old) & (self.times <= path.t)]
        self.recorded += [(float(time), path(time)) for time in times]
        heights, levels = self.system.heights, self.system.levels(self.threshold)
        was_active, is_active = heights(before) >= levels, heights(after) >= levels
        crossed = np.flatnonzero(was_active != is_active)
        for time, i in sorted((self._crossing_time(path, int(i)), int(i)) for i in crossed):
            self._cross(i, time, path(time), entered=bool(is_active[i]))

    def _crossing_time(self, path: DenseOutput, i: int) -> float:
        """Return the time at which coordinate i crosses the threshold within a step."""
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
