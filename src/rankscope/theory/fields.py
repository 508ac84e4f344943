"""Vector fields of gradient flow (boix2023, Eq. 4) for scipy's solvers, in y or in (u, v)."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import DOP853, OdeSolver, Radau
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork
from rankscope.theory.reduction import Reduction

State = Float[np.ndarray, " state"]
Path = Float[np.ndarray, "time state"]
Matrix = Float[np.ndarray, "state state"]
Coordinates = Float[Tensor, "time p"]

# Columns of the Jacobian below this are left out: a coordinate that small moves nothing, so it
# cannot slow Newton's iteration down. At nearly all times this holds for nearly all coordinates.
NEGLIGIBLE = 1e-6

# A coordinate is quiet until its |z| reaches this: then it begins to bend the others' paths.
QUIET = 1e-3


class LogField:
    """Vector field of y / log(1/alpha), which goes from about 0 to +-1 at any alpha.

    Its slope is g(z), its Jacobian -H_z diag(dz/dy) log(1/alpha).
    """

    def __init__(self, network: DiagonalNetwork, reduction: Reduction, log_alpha: float) -> None:
        self.network, self.reduction, self.scale = network, reduction, -log_alpha
        self.start = (reduction.y0 / self.scale).numpy()
        self.evaluations = 0
        self._last: tuple[State, State] | None = None

    def slope(self, time: float, state: State) -> State:
        """Return g(z)."""
        self.evaluations += 1
        drive: State = self.network.g(self.z(state)).numpy()
        self._last = state.copy(), drive
        return drive

    def jacobian(self, time: float, state: State) -> Matrix:
        """Return the derivative of the slope, without negligible columns."""
        dz = self.scale * self.reduction.dz_dy(self.y(state))
        columns = (dz > NEGLIGIBLE).nonzero().flatten().tolist()
        jacobian = np.zeros((len(state), len(state)))
        if columns:
            self.evaluations += 2 * len(columns)
            hessian = self.network.hessian(self.z(state), columns)
            jacobian[:, columns] = -(hessian * dz[columns]).numpy()
        return jacobian

    def solver(self, until: float, tolerance: float) -> OdeSolver:
        """Return Radau's method, which evaluates its Jacobian only at states the flow has reached.

        BDF and LSODA evaluate it at predicted states, which may lie far past an activation. There
        the Jacobian is huge, Newton's iteration seems to converge and accepts a wrong step.
        """
        # An error of `tolerance` in y is a relative error of twice that in z. The state's own size
        # means nothing; 3e-14 is the smallest relative tolerance that scipy allows.
        return Radau(
            self.slope,
            0.0,
            self.start,
            until,
            jac=self.jacobian,
            atol=tolerance / self.scale,
            rtol=3e-14,
        )

    def longest_step(self, state: State) -> float:
        """Return the time until the next quiet coordinate, at its present slope, stops being quiet.

        Between stages slopes are constant and a solver takes ever longer steps. One of them would
        end far past the next activation, where z overflows, and cost many evaluations to undo. The
        result is at least one e-folding of that coordinate.
        """
        slope = self._slope_at(state)
        levels = self.levels(QUIET)
        moving = (np.abs(state) < levels) & (slope != 0)
        if not moving.any():
            return np.inf
        state, slope, levels = state[moving], slope[moving], levels[moving]
        with np.errstate(over="ignore"):  # a drive of 1e-320 means a very long wait
            wait = (np.sign(slope) * levels - state) / slope
        first = wait.argmin()
        longest: float = max(wait[first], 1 / (2 * self.scale * abs(slope[first])))
        return longest

    def heights(self, states: Float[np.ndarray, "*time state"]) -> Float[np.ndarray, "*time p"]:
        """Return a measure of each coordinate that grows with |z| and is `levels(z)` at z."""
        sizes: np.ndarray = np.abs(states)
        return sizes

    def levels(self, z: float) -> Float[np.ndarray, " p"]:
        levels: State = (self.reduction.y_at(z) / self.scale).numpy()
        return levels

    def z(self, states: Float[np.ndarray, "*time state"]) -> Float[Tensor, "*time p"]:
        return self.reduction.z(self.y(states))

    def y(self, states: Float[np.ndarray, "*time state"]) -> Float[Tensor, "*time p"]:
        return torch.from_numpy(states) * self.scale

    def weights(self, states: Path) -> tuple[Coordinates, Coordinates]:
        return self.reduction.weights(self.y(states))

    def _slope_at(self, state: State) -> State:
        if self._last is None or not np.array_equal(self._last[0], state):
            return self.slope(0.0, state)
        return self._last[1]


class WeightField:
    """Vector field of (u, v) themselves, in which Eq. 5 is a result and not built in."""

    def __init__(self, network: DiagonalNetwork, reduction: Reduction, log_alpha: float) -> None:
        self.network, self.reduction, self.scale = network, reduction, -log_alpha
        self.start = torch.cat(reduction.weights(reduction.y0)).numpy()
        if float(np.abs(self.start).max()) < 1e-300:
            raise ValueError(
                f"coordinates='uv' from alpha = exp({log_alpha:g}): the weights underflow to 0, "
                "where the flow stands still; use coordinates='y'"
            )
        self.evaluations = 0

    def slope(self, time: float, state: State) -> State:
        self.evaluations += 1
        u, v = self.weights(state)
        g = self.network.g(u * v)
        slope: State = (self.scale * torch.cat([v * g, u * g])).numpy()
        return slope

    def solver(self, until: float, tolerance: float) -> OdeSolver:
        """Return an explicit solver: at the tolerances Eq. 5 needs, steps are short in any case."""
        smallest = float(np.abs(self.start[self.start != 0]).min())
        return DOP853(self.slope, 0.0, self.start, until, rtol=tolerance, atol=tolerance * smallest)

    def longest_step(self, state: State) -> float:
        return np.inf

    def heights(self, states: Float[np.ndarray, "*time state"]) -> Float[np.ndarray, "*time p"]:
        u, v = np.split(states, 2, axis=-1)
        sizes: np.ndarray = np.abs(u * v)
        return sizes

    def levels(self, z: float) -> Float[np.ndarray, " p"]:
        return np.full(self.network.p, z)

    def z(self, states: Path) -> Coordinates:
        u, v = self.weights(states)
        return u * v

    def y(self, states: Path) -> Coordinates:
        return self.reduction.y_at(self.z(states))

    def weights(self, states: Float[np.ndarray, "*time state"]) -> tuple[Tensor, Tensor]:
        u, v = torch.from_numpy(states).chunk(2, -1)
        return u, v


Field = LogField | WeightField  # coordinate systems that `flow` works in, in rescaled time
