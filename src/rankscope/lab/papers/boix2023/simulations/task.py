"""Toy tasks of boix2023: a teacher, Gaussian tokens, and a start for the flow."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.theory import DiagonalNetwork, diagonal_attention, diagonal_head, flow


class Toy(NamedTuple):
    """A network, and u0 and v0 of its start alpha (u0, v0)."""

    network: DiagonalNetwork
    u0: Float[Tensor, " p"]
    v0: Float[Tensor, " p"]


@runtime_checkable
class Task(Protocol):
    """A frozen dataclass that builds a toy; it is part of a run's identity."""

    def build(self, seed: int) -> Toy: ...


@dataclass(frozen=True)
class DiagonalTask:
    """One head with diagonal weights that learns from another (section 5, App. C).

    Tokens, the teacher's four weight vectors and (u0, v0) are standard Gaussian. `teacher_scale`
    multiplies the teacher's products.
    """

    d: int
    tokens: int
    samples: int
    teacher_scale: float = 1.0

    def build(self, seed: int) -> Toy:
        generator = torch.Generator().manual_seed(seed)
        x = gaussian(self.samples, self.tokens, self.d, generator=generator)
        K, Q, V, O = gaussian(4, self.d, generator=generator)  # noqa: E741
        target = diagonal_attention(x, self.teacher_scale * K * Q, self.teacher_scale * V * O)
        u0, v0 = gaussian(2, 2 * self.d, generator=generator)
        return Toy(diagonal_head(x, target), u0, v0)


def gaussian(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def horizon(toy: Toy, stages: int) -> float:
    """Return the rescaled time at which a flow from alpha = 1e-8 has `stages` active coordinates.

    Flows from every alpha and Algorithm 1 run to this time, so they share one axis without waiting
    for each other. This flow costs a fraction of those from smaller alphas.
    """
    first = 1 / float(toy.network.g(torch.zeros_like(toy.u0)).abs().max())
    trajectory = flow(
        toy.network,
        toy.u0,
        toy.v0,
        math.log(1e-8),
        20 * first,
        times=torch.zeros(1, dtype=torch.float64),
        stop_after=stages,
    )
    if len(trajectory.activations) < stages:
        raise ValueError(
            f"only {len(trajectory.activations)} coordinates became active from alpha = 1e-8 by "
            f"20 times T_1; ask for fewer than {stages} stages"
        )
    return trajectory.activations[-1].time
