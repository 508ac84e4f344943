"""Networks f(x; u, v) = h(x; u * v) of boix2023, Definition 3.1, seen through z = u * v."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.smoothness import kinks

Vector = Float[Tensor, " p"]
Model = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Coordinate:
    """Name of one entry of z: entry `index` of a head's K-Q or V-O product, or of z itself."""

    kind: Literal["kq", "vo", "z"]
    index: int
    layer: int = 0
    head: int = 0

    def __str__(self) -> str:
        place = "" if self.kind == "z" else f"l{self.layer}.h{self.head}."
        return f"{place}{self.kind}.{self.index}"


class DiagonalNetwork:
    """Loss L(z) = loss(h(x; z), target) over all samples, and its derivatives in z, in float64.

        DiagonalNetwork(lambda x, z: x @ z, square_error, (x, target), coordinates=5)

    h: any torch function of (x, z), evaluated on all samples at once. The theorem needs it twice
        continuously differentiable in z; a warning is given when it visibly is not.
    loss: function of (prediction, target) that returns one number, the mean over samples:
        `square_error` or your own.
    coordinates: number of entries of z, or a name for each of them.
    decay: adds decay / 2 |z|^2, which gives a loss such as cross-entropy a finite minimiser.
    hessian: Hessian of the loss in z, if it is the same at every z; Algorithm 1 is then quicker.
    """

    def __init__(
        self,
        h: Model,
        loss: Loss,
        data: tuple[Tensor, Tensor],
        coordinates: Sequence[Coordinate] | int,
        *,
        decay: float | int = 0.0,
        hessian: Float[Tensor, "p p"] | None = None,
    ) -> None:
        if not decay >= 0:
            raise ValueError(f"decay is {decay:g}; it should be 0 or above")
        self.h, self.decay = h, decay
        self.x, self.target = _checked("x", data[0]), _checked("target", data[1])
        self.coordinates = (
            tuple(Coordinate("z", i) for i in range(coordinates))
            if isinstance(coordinates, int)
            else tuple(coordinates)
        )
        self._loss_of = loss
        self.constant_hessian: Float[Tensor, "p p"] | None = None
        self._try_once()
        if hessian is not None:
            self._start_drive = self.g(torch.zeros(self.p, dtype=torch.float64))
            decays = decay * torch.eye(self.p, dtype=torch.float64)
            self.constant_hessian = _checked("hessian", hessian) + decays

    @property
    def p(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @torch.no_grad()
    def loss(self, z: Vector) -> float:
        """Return L(z)."""
        return float(self._loss(z))

    def g(self, z: Vector) -> Vector:
        """Return -dL/dz, the drive of each coordinate (Eq. 4)."""
        if self.constant_hessian is not None:
            return self._start_drive - self.constant_hessian @ z
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._loss(z), z)
        return -gradient

    def hessian(self, z: Vector, columns: list[int] | None = None) -> Float[Tensor, "p columns"]:
        """Return some columns (by default all) of the Hessian of L in z.

        Each column takes one reverse pass through the gradient, about the cost of a gradient.
        """
        if self.constant_hessian is not None:
            return self.constant_hessian[:, slice(None) if columns is None else columns]
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._loss(z), z, create_graph=True)
            hessian = [
                torch.autograd.grad(gradient[i], z, retain_graph=True)[0]
                for i in (range(self.p) if columns is None else columns)
            ]
        return torch.stack(hessian, 1) if hessian else z.new_zeros(self.p, 0)

    def _loss(self, z: Tensor) -> Tensor:
        # Kept at decay 0 too: it makes the gradient depend on z, so a linear loss has a Hessian.
        penalty = self.decay / 2 * z.square().sum()
        return self._loss_of(self.h(self.x, z), self.target) + penalty

    def _try_once(self) -> None:
        """Evaluate the loss once, check that it is one finite number, and warn of kinks."""
        z = torch.linspace(0.1, 0.2, self.p, dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            if not self.h(self.x, z).requires_grad:
                raise ValueError(
                    "the prediction does not depend on z; h may detach it, or go through numpy"
                )
            value = self._loss(z)
        if value.ndim != 0:
            raise ValueError(
                f"loss gave a tensor of shape {tuple(value.shape)}; it should be one number, "
                "the mean over samples"
            )
        start = torch.zeros_like(z)
        if not (math.isfinite(self.loss(start)) and bool(self.g(start).isfinite().all())):
            raise ValueError(
                "the loss or its gradient is not finite at z = 0, where every flow begins; "
                "choose an h that is smooth there"
            )
        if kinked := kinks(value):
            warnings.warn(
                f"h or the loss uses {', '.join(kinked)}, which is not twice differentiable "
                "everywhere: boix2023's Theorem 4.5 does not cover it, results are a heuristic",
                stacklevel=3,
            )


def square_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Return half the squared error, summed over the last axis of vectors, averaged over others."""
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction has shape {tuple(prediction.shape)} and target {tuple(target.shape)}; "
            "they should be alike"
        )
    squares = (prediction - target).square()
    return (squares.sum(-1) if squares.ndim > 1 else squares).mean() / 2


def _checked(name: str, data: Tensor) -> Tensor:
    data = torch.as_tensor(data)
    if not data.is_floating_point():
        return data  # tokens or class numbers
    if not bool(data.isfinite().all()):
        raise ValueError(f"{name} holds NaN or infinite values; remove those samples first")
    return data.detach().to(torch.float64)
