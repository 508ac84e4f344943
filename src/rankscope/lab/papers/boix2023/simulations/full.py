"""A run of gradient flow of an attention head with full matrices."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.papers.boix2023.simulations.flow import trajectory_attrs
from rankscope.lab.papers.boix2023.simulations.task import gaussian
from rankscope.store import Variable, Writer
from rankscope.theory import FullHead, attention, flow_full

Weights = Float[Tensor, "4 d r"]

ALIGNED = (1.0, 0.6, 0.36)  # singular values of both products of the aligned teacher


@dataclass(frozen=True)
class FullTask:
    """A head that learns from a teacher head on Gaussian tokens, from a standard Gaussian start.

    teacher: "gaussian" has four Gaussian matrices, scaled for attention logits of standard
        deviation 0.3. "aligned" has products with the singular values 1, 0.6, 0.36, and
        W_V W_O^T passes on the features that W_K W_Q^T attends to.
    """

    d: int
    tokens: int
    samples: int
    teacher: Literal["gaussian", "aligned"]

    def build(self, seed: int) -> tuple[FullHead, Weights]:
        generator = torch.Generator().manual_seed(seed)
        x = gaussian(self.samples, self.tokens, self.d, generator=generator)
        teacher = self.teacher_weights(generator)
        start = gaussian(4, self.d, self.d, generator=generator)
        return FullHead(x, attention(x, *teacher)), start

    def teacher_weights(self, generator: torch.Generator) -> Weights:
        weights = gaussian(4, self.d, self.d, generator=generator)
        if self.teacher == "gaussian":
            # x^T W_K W_Q^T x' has deviation s^2 d^(3/2) if the matrices have deviation s.
            return math.sqrt(0.3 / self.d**1.5) * weights
        directions: Tensor = torch.linalg.qr(weights).Q[..., : len(ALIGNED)]
        directions[2] = directions[1]
        return directions * torch.tensor(ALIGNED, dtype=torch.float64).sqrt()


@dataclass(frozen=True)
class FullRun:
    """A gradient flow of a full head: singular values of both products and loss over time.

    until: rescaled time at the end, in units of the first activation time
        1 / |dL/d(V-O) at zero|_2.
    """

    task: FullTask
    log10_alpha: float
    until: float
    stop_below: float = 1e-6

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        head, start = self.task.build(seed)
        _, _, slopes = head.derivatives(torch.zeros_like(start))
        rate = float(torch.linalg.matrix_norm(slopes[1], ord=2))
        trajectory = flow_full(
            head,
            start,
            self.log10_alpha * math.log(10),
            self.until / rate,
            tolerance=1e-3,
            stop_below=self.stop_below,
            progress=progress,
        )
        variables = {
            "time": Variable(("time",), np.float64),
            "loss": Variable(("time",), np.float64),
            "singular_values": Variable(("time", "product", "k"), np.float64),
        }
        coords = {
            "product": (("product",), np.array(["kq", "vo"])),
            "k": (("k",), np.arange(self.task.d)),
        }
        attrs = trajectory_attrs(self.log10_alpha, trajectory)
        with Writer.create(path, coords=coords, variables=variables, attrs=attrs) as writer:
            by_time = {"loss": trajectory.loss, "singular_values": trajectory.singular_values}
            writer.extend("time", trajectory.time.numpy(), by_time)
