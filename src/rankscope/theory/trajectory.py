"""Results of a flow or a descent: coordinates and loss over time, and when each became active."""

from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Crossing:
    """Time at which |z| of one coordinate crosses the threshold: it became active, or it left."""

    coordinate: int
    time: float
    entered: bool
    sign: int


@dataclass(frozen=True)
class Trajectory:
    """Path of training in rescaled time t / log(1/alpha).

    u, v, z: the network's weights and their products; they underflow to 0 below 1e-308.
    y: the coordinate that never underflows (`rankscope.theory.reduction`).
    gradient_evaluations: gradients of the whole loss; a column of the Hessian counts as two.
    finished: whether the path came to its end; `message` says in a sentence what happened.
    """

    time: Float[Tensor, " time"]
    z: Float[Tensor, "time p"]
    y: Float[Tensor, "time p"]
    u: Float[Tensor, "time p"]
    v: Float[Tensor, "time p"]
    loss: Float[Tensor, " time"]
    log_alpha: float
    crossings: tuple[Crossing, ...]
    gradient_evaluations: int
    finished: bool
    message: str

    @property
    def activations(self) -> tuple[Crossing, ...]:
        """First crossing of each coordinate that became active, in order."""
        first: dict[int, Crossing] = {}
        for crossing in self.crossings:
            if crossing.entered:
                first.setdefault(crossing.coordinate, crossing)
        return tuple(first.values())


def active(crossings: Iterable[Crossing]) -> set[int]:
    """Return the coordinates that have become active."""
    return {crossing.coordinate for crossing in crossings if crossing.entered}


def counted(coordinates: int) -> str:
    """Write a number of coordinates: "no coordinate", "1 coordinate", "2 coordinates"."""
    return f"{coordinates or 'no'} coordinate{'s' if coordinates > 1 else ''}"
