"""What a flow or a descent gives: coordinates and loss over time, and when each became active."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Crossing:
    """|z| of one coordinate crossing the threshold: it became active, or it left."""

    coordinate: int
    time: float
    entered: bool
    sign: int


@dataclass(frozen=True)
class Trajectory:
    """A path of training in rescaled time t / log(1/alpha).

    u and v are the network's own weights and underflow to 0 below 1e-308, as z does below it; y is
    the coordinate that does not (`rankscope.theory.reduction`).
    gradient_evaluations: gradients of the whole loss; a column of the Hessian counts as two.
    finished: whether it came to its end; `message` says in a sentence what happened.
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
        """The first time each coordinate became active, in order."""
        first: dict[int, Crossing] = {}
        for crossing in self.crossings:
            if crossing.entered:
                first.setdefault(crossing.coordinate, crossing)
        return tuple(first.values())


def counted(coordinates: int) -> str:
    """ "no coordinate", "1 coordinate", "2 coordinates" """
    return f"{coordinates or 'no'} coordinate{'s' if coordinates > 1 else ''}"
