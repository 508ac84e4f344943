"""A run that tests the conservation law (boix2023, Lemma 4.1) without building it in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.papers.boix2023.simulations.flow import flow_to_horizon
from rankscope.lab.papers.boix2023.simulations.task import Task, Toy
from rankscope.store import Variable, Writer


@dataclass(frozen=True)
class ConservationRun:
    """Drift of u^2 - v^2 along the flow, and the error of its exact law along gradient descent.

    It stores two variables, each the largest value over coordinates:
    drift(time): |change of u^2 - v^2| / |u^2 - v^2| along the flow in (u, v). For an active
        coordinate, u^2 and v^2 are 1 / alpha^2 times their difference, so alpha is moderate.
    gd_error(step): |u^2 - v^2 - (1 - rate^2 g^2) x its value before| / (u^2 + v^2), in units of
        float64's rounding.
    """

    task: Task
    log10_alpha: float
    stages: int
    rate: float
    steps: int

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        toy = self.task.build(seed)
        trajectory = flow_to_horizon(
            toy,
            self.log10_alpha,
            self.stages,
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
        """Errors of gradient descent from u, v of the teacher's size, where rounding is worst."""
        u, v, errors = toy.u0, toy.v0, []
        for _ in range(self.steps):
            g = toy.network.g(u * v)
            expected = (u.square() - v.square()) * (1 - (self.rate * g).square())
            u, v = u + self.rate * v * g, v + self.rate * u * g
            error = (u.square() - v.square() - expected).abs() / (u.square() + v.square())
            errors.append(error.max() / torch.finfo(torch.float64).eps)
        return torch.stack(errors)
