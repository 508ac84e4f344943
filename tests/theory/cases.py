"""Small networks, and their solutions without the code under test."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from rankscope.theory import DiagonalNetwork, diagonal_attention, diagonal_head, linear_network

LOG10 = math.log(10)

# Columns so correlated that a coordinate leaves the support and comes back later.
LEAVING = {
    "three": (
        [[-2, -1, -3], [0, 0, 0], [-1, -2, 1], [3, 3, -3]],
        [-1, -2, 1, 1],
    ),
    "five": (
        [
            [-2, -1, 0, 2, -3],
            [2, -3, -3, -3, 3],
            [-2, 2, -2, 0, -1],
            [3, -1, -1, -3, 0],
            [2, 2, 3, 0, 2],
            [0, 1, 3, 3, 1],
        ],
        [1, 0, 0, 1, -2, 4],
    ),
}


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def rotation(d: int, *, seed: int) -> Tensor:
    return torch.linalg.qr(normal(d, d, seed=seed)).Q


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def start(p: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return u0 and v0 of both orders and all signs, none near |u0| = |v0|."""
    signs = normal(2, p, seed=seed).sgn()
    sizes = torch.where(
        normal(p, seed=seed + 1) > 0, vector(1.0, 0.3)[:, None], vector(0.4, 1.2)[:, None]
    )
    u0, v0 = signs * sizes
    return u0, v0


def correlated(p: int, *, seed: int, samples: int = 20) -> DiagonalNetwork:
    """Return a linear network with correlated inputs."""
    x = normal(samples, p, seed=seed) @ (torch.eye(p).double() + normal(p, p, seed=seed + 1) / 2)
    return linear_network(x, x @ normal(p, seed=seed + 2) + normal(samples, seed=seed + 3))


def loss_network(loss: Callable[[Tensor], Tensor], p: int = 1) -> DiagonalNetwork:
    """Return a network whose loss is L(z) itself."""
    return DiagonalNetwork(
        lambda x, z: loss(z), lambda prediction, _: prediction, (vector(0), vector(0)), p
    )


def attention_task(seed: int, *, samples: int = 40) -> DiagonalNetwork:
    """Return a diagonal head with three features that learns from another."""
    x = normal(samples, 4, 3, seed=seed)
    return diagonal_head(x, diagonal_attention(x, vector(0.8, -0.6, 0.4), vector(1.0, -0.7, 0.5)))


def attention_by_token(x: Tensor, KQ: Tensor, VO: Tensor) -> Tensor:
    """Compute Eq. 1 token by token: smax(X W_K W_Q^T X^T) X W_V W_O^T."""
    rows = []
    for sample in x:
        for token in sample:
            weight = torch.einsum("i,ij,mj->m", token, KQ, sample).exp()
            rows.append(torch.einsum("m,mi,ij->j", weight / weight.sum(), sample, VO))
    return torch.stack(rows).view(x.shape)


def leaving(name: str) -> DiagonalNetwork:
    """Return a network in which a coordinate leaves the support and comes back."""
    x, target = (torch.tensor(numbers, dtype=torch.float64) for numbers in LEAVING[name])
    return linear_network(x, target)


class WhitenedSolution:
    """Flow of L(z) = (z - optimum)^2 / 2 from alpha (u0, v0), solved by hand.

    q = e^{2y} obeys dq/dt = 2 a q - c (q^2 - 1) / 2 = -c/2 (q - q1)(q + 1/q1), a logistic equation.
    We compute it in decimals of 80 digits and any exponent. For optimum < 0, z and v0 are mirrored.
    """

    def __init__(self, optimum: float, u0: float, v0: float, log10_alpha: int) -> None:
        self.mirror = 1 if optimum > 0 else -1
        self.alpha = Decimal(10) ** log10_alpha
        larger, smaller = (u0, v0) if abs(u0) > abs(v0) else (v0, u0)
        u, v = Decimal(abs(larger)), Decimal(math.copysign(1, larger) * smaller * self.mirror)
        with localcontext(prec=80):
            self.a = Decimal(abs(optimum))
            self.c = self.alpha**2 * (u - v) * (u + v)
            self.rate = (4 * self.a**2 + self.c**2).sqrt()
            self.q1 = (2 * self.a + self.rate) / self.c
            self.q0 = (u + v) / (u - v)

    def time(self, z: float) -> float:
        """Return the rescaled time at which |z| of a growing coordinate is `z`."""
        with localcontext(prec=80):
            double = 2 * Decimal(z)
            q = (double + (double**2 + self.c**2).sqrt()) / self.c
            odds = (q + 1 / self.q1) * (self.q1 - self.q0)
            odds /= (self.q1 - q) * (self.q0 + 1 / self.q1)
            return float(odds.ln() / self.rate / -self.alpha.ln())

    def z(self, time: float) -> float:
        """Return z at a rescaled time."""
        with localcontext(prec=80):
            odds = (self.q0 + 1 / self.q1) / (self.q1 - self.q0)
            odds *= (self.rate * Decimal(time) * -self.alpha.ln()).exp()
            q = (odds * self.q1 - 1 / self.q1) / (1 + odds)
            return self.mirror * float(self.c * (q - 1 / q) / 4)


@dataclass
class ReferenceStage:
    """Fields of `Stage` that the reference computes."""

    winner: int
    time: float
    z: np.ndarray
    b: np.ndarray
    left: tuple[int, ...]
    returned: bool


def reference_stages(x: np.ndarray, target: np.ndarray) -> list[ReferenceStage]:
    """Run Algorithm 1 on a linear network without any flow.

    The loss is convex, so stage B ends at its minimum over the orthant. Lawson and Hanson's
    active-set method computes that minimum.
    """
    p = x.shape[1]
    z, b, time, stages, visited = np.zeros(p), np.ones(p), 0.0, [], set()
    while True:
        g = x.T @ (target - x @ z) / len(x)
        waits = [
            (b[i] / g[i] if g[i] > 0 else (2 - b[i]) / -g[i], i)
            for i in range(p)
            if z[i] == 0 and abs(g[i]) > 1e-9
        ]
        if not waits:
            return stages
        wait, winner = min(waits)
        time += wait
        b = np.where(z == 0, b - g * wait, b)
        sign = np.sign(z)
        sign[winner] = np.sign(g[winner])
        support = np.flatnonzero(sign)
        z = np.zeros(p)
        z[support] = sign[support] * nnls(x[:, support] * sign[support], target)[0]
        left = tuple(int(i) for i in support if z[i] == 0)
        stages.append(ReferenceStage(winner, time, z, b, left, winner in visited))
        visited |= set(support.tolist())
