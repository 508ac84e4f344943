"""Perturbation experiment of boix2023, App. C (figs. 9 and 10): perturb the weights, train on.

Independent noise on u and v changes the conserved u^2 - v^2. Then (u, v) cannot come back but
z = u v can, so distances are in z. The tied noise (u, s u) of Assumption 4.3 conserves u^2 - v^2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankscope.theory.fields import LogField
from rankscope.theory.gradient_flow import March
from rankscope.theory.networks import DiagonalNetwork, Vector
from rankscope.theory.reduction import Reduction
from rankscope.theory.trajectory import Crossing

Path = Float[Tensor, "time p"]
Noise = Literal["independent", "tied"]
Kind = Literal["plateau", "newly active"]

NOISES: tuple[Noise, ...] = ("independent", "tied")
TAU = 1e-5  # weights above it are not negligible (App. C)


def continued(
    network: DiagonalNetwork,
    state: Reduction,
    log_alpha: float,
    times: Float[Tensor, " time"],
    *,
    tolerance: float = 1e-4,
) -> tuple[Path, March]:
    """Continue the flow from any state; return y at rescaled `times` since then, and the march.

    The state is (y0, log_c) of a Reduction. They still hold u^2 - v^2 of an active coordinate,
    whose u and v are equal in float64.
    """
    system = LogField(network, state, log_alpha)
    march = March(system, threshold=TAU**2, times=times.numpy())
    march.go(float(times[-1]), tolerance=tolerance)
    y = torch.stack([system.y(recorded_state) for _, recorded_state in march.recorded])
    return y, march


@dataclass(frozen=True)
class Reference:
    """An unperturbed run, recorded at every epoch.

    reduction: the start of the run.
    epoch: duration of one epoch, not rescaled.
    crossings: crossings of `TAU` by the weights, in rescaled time.
    """

    network: DiagonalNetwork
    reduction: Reduction
    log_alpha: float
    epoch: float
    y: Path
    crossings: tuple[Crossing, ...]

    @classmethod
    def run(
        cls,
        network: DiagonalNetwork,
        u0: Vector,
        v0: Vector,
        log_alpha: float,
        until: float,
        *,
        epoch: float,
    ) -> "Reference":
        """Run the flow from alpha (u0, v0) up to `until` in rescaled time."""
        reduction = Reduction.of(u0, v0, log_alpha)
        epochs = math.ceil(until * -log_alpha / epoch)
        times = torch.arange(epochs + 1, dtype=torch.float64) * epoch / -log_alpha
        y, march = continued(network, reduction, log_alpha, times)
        if not march.finished:
            raise ValueError(
                f"the run to be perturbed did not reach time {until:g}: {march.message}"
            )
        return cls(network, reduction, log_alpha, epoch, y, tuple(march.crossings))

    @property
    def time(self) -> Float[Tensor, " time"]:
        """Rescaled time of every epoch."""
        return torch.arange(len(self.y), dtype=torch.float64) * self.epoch / -self.log_alpha

    def newly_active(self) -> tuple[int, ...]:
        """Return the first epochs at which another weight is above TAU."""
        epochs = {
            math.ceil(crossing.time * -self.log_alpha / self.epoch)
            for crossing in self.crossings
            if crossing.entered
        }
        return tuple(sorted(epochs))


@dataclass(frozen=True)
class Trial:
    """One perturbed run beside the unperturbed one at equal times.

    epochs: recorded epochs, counted from the perturbation.
    perturbed: which coordinates had a weight above TAU and so were perturbed.
    """

    kind: Kind
    noise: Noise
    std: float
    start_time: float
    epochs: tuple[int, ...]
    perturbed: Bool[Tensor, " p"]
    perturbed_z: Path
    unperturbed_z: Path

    @property
    def distance(self) -> Float[Tensor, " time"]:
        """Distance in z from the unperturbed run, over the coordinates that were perturbed."""
        distance: Tensor = (self.perturbed_z - self.unperturbed_z)[:, self.perturbed].norm(dim=1)
        return distance

    @property
    def distance_all(self) -> Float[Tensor, " time"]:
        """Distance in z from the unperturbed run, over all coordinates."""
        distance: Tensor = (self.perturbed_z - self.unperturbed_z).norm(dim=1)
        return distance


def trial(
    reference: Reference,
    start: int,
    *,
    kind: Kind,
    noise: Noise,
    std: float,
    epochs: Sequence[int],
    generator: torch.Generator,
) -> Trial:
    """Perturb the reference at epoch `start` and train on for `epochs`, counted from there."""
    if start + epochs[-1] >= len(reference.y):
        raise ValueError(
            f"epoch {start} and {epochs[-1]} more is past the end of the reference, which has "
            f"{len(reference.y) - 1} epochs; run it for longer"
        )
    before = replace(reference.reduction, y0=reference.y[start])
    begun, mask = perturbed(before, noise=noise, std=std, generator=generator)
    times = torch.tensor(epochs, dtype=torch.float64) * reference.epoch / -reference.log_alpha
    y, march = continued(reference.network, begun, reference.log_alpha, times)
    if not march.finished:
        raise ValueError(f"{noise} noise at time {reference.time[start]:g}: {march.message}")
    return Trial(
        kind,
        noise,
        std,
        float(reference.time[start]),
        tuple(epochs),
        mask,
        begun.z(y),
        reference.reduction.z(reference.y[[start + epoch for epoch in epochs]]),
    )


def perturbed(
    state: Reduction, *, noise: Noise, std: float, generator: torch.Generator
) -> tuple[Reduction, Bool[Tensor, " p"]]:
    """Add Gaussian noise to every weight above TAU; return the state and the coordinates changed.

    Independent noise draws a number for u and one for v. Tied noise keeps v = s u, and u^2 - v^2
    as small as it was.
    """
    u, v = state.weights(state.y0)
    mask = torch.maximum(u.abs(), v.abs()) > TAU
    first, second = std * torch.randn(2, len(u), generator=generator, dtype=torch.float64)
    if noise == "independent":
        # The weights themselves, as alpha times a start; any alpha would do.
        part = Reduction.of(2 * (u + first)[mask], 2 * (v + second)[mask], -math.log(2))
    else:
        part = _tied(state, u + first, mask)
    return Reduction(
        state.log_c.masked_scatter(mask, part.log_c),
        state.y0.masked_scatter(mask, part.y0),
        state.swapped.masked_scatter(mask, part.swapped),
        state.sign.masked_scatter(mask, part.sign),
    ), mask


def _tied(state: Reduction, u: Vector, mask: Bool[Tensor, " p"]) -> Reduction:
    """Return the state (u, s u) on the mask: z = s u^2, with an unchanged c."""
    chosen = mask.nonzero().flatten().tolist()
    sizes = [float(state.y_at(float(u[i].square()))[i]) for i in chosen]
    before, _ = state.weights(state.y0)
    return Reduction(
        state.log_c[mask],
        state.y0[mask].sgn() * torch.tensor(sizes, dtype=torch.float64),
        state.swapped[mask],
        state.sign[mask] * (u * before)[mask].sgn(),
    )
