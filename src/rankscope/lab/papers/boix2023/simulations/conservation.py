"""A run that tests the conservation law (boix2023, Lemma 4.1) where it is not built in."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.papers.boix2023.simulations.task import Task, Toy, horizon
from rankscope.store import Variable, Writer
from rankscope.theory import flow


@dataclass(frozen=True)
class ConservationRun:
    """Drift of u^2 - v^2 along the flow in (u, v), and along gradient descent from the exact law.

    drift(time): largest |change of u^2 - v^2| / |u^2 - v^2| over coordinates. Where a coordinate is
        active that is a difference of two numbers 1 / alpha^2 times its size, so alpha is moderate.
    gd_error(step): largest |u^2 - v^2 - its value before x (1 - rate^2 g^2)| / (u^2 + v^2), in
        units of float64's rounding.
    """

    task: Task
    log10_alpha: float
    stages: int
    rate: float
    steps: int

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        toy = self.task.build(seed)
        trajectory = flow(
            toy.network,
            toy.u0,
            toy.v0,
            self.log10_alpha * math.log(10),
            horizon(toy, self.stages),
            coordinates="uv",
            progress=lambda done: progress(0.9 * done),
        )
        conserved = trajectory.u.square() - trajectory.v.square()
        drift = ((conserved - conserved[0]) / conserved[0]).abs().amax(1)
        variables = {
            "time": Variable(("time",), np.float64),
            "drift": Variable(("time",), np.float64),
            "gd_error": Variable(("step",), np.float64),
        }
        attrs = {
            "log10_alpha": self.log10_alpha,
            "finished": trajectory.finished,
            "message": trajectory.message,
        }
        with Writer.create(path, coords={}, variables=variables, attrs=attrs) as writer:
            writer.extend("time", trajectory.time.numpy(), {"drift": drift})
            errors = self.descent_errors(toy)
            writer.extend("step", np.arange(1, len(errors) + 1), {"gd_error": errors})

    def descent_errors(self, toy: Toy) -> Float[Tensor, " step"]:
        """From u, v of the teacher's size, where rounding is hardest on the difference."""
        u, v, errors = toy.u0, toy.v0, []
        for _ in range(self.steps):
            g = toy.network.g(u * v)
            expected = (u.square() - v.square()) * (1 - (self.rate * g).square())
            u, v = u + self.rate * v * g, v + self.rate * u * g
            error = (u.square() - v.square() - expected).abs() / (u.square() + v.square())
            errors.append(error.max() / torch.finfo(torch.float64).eps)
        return torch.stack(errors)
