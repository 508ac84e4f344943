"""A run of gradient flow from one alpha."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.lab.papers.boix2023.simulations.task import Task, Toy, horizon
from rankscope.store import Variable, Writer
from rankscope.theory import DiagonalNetwork, Trajectory, flow


@dataclass(frozen=True)
class FlowRun:
    """A gradient flow, stored as z, y and loss over rescaled time, and times of activation.

    stages: number of stages that the flow covers, see `horizon`.
    threshold: a coordinate with |z| above this is active.
    """

    task: Task
    log10_alpha: float
    stages: int
    threshold: float = 1e-2

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        toy = self.task.build(seed)
        trajectory = flow_to_horizon(
            toy, self.log10_alpha, self.stages, threshold=self.threshold, progress=progress
        )
        write_trajectory(path, toy.network, trajectory, {"log10_alpha": self.log10_alpha})


def flow_to_horizon(toy: Toy, log10_alpha: float, stages: int, **options: Any) -> Trajectory:
    """Follow the flow from alpha to the horizon of `stages`; pass `options` to `flow`."""
    until = horizon(toy, stages)
    return flow(toy.network, toy.u0, toy.v0, log10_alpha * math.log(10), until, **options)


def write_trajectory(
    path: Path, network: DiagonalNetwork, trajectory: Trajectory, attrs: dict[str, Any]
) -> None:
    """Store one trajectory: z and y(time, coordinate), loss(time), crossing_*(crossing)."""
    variables = {
        "time": Variable(("time",), np.float64),
        "z": Variable(("time", "coordinate"), np.float64),
        "y": Variable(("time", "coordinate"), np.float64),
        "loss": Variable(("time",), np.float64),
        "crossing_time": Variable(("crossing",), np.float64),
        "crossing_coordinate": Variable(("crossing",), np.int64),
        "crossing_entered": Variable(("crossing",), np.int8),
        "crossing_sign": Variable(("crossing",), np.int8),
    }
    attrs = {
        **attrs,
        "gradient_evaluations": trajectory.gradient_evaluations,
        "finished": trajectory.finished,
        "message": trajectory.message,
    }
    crossings = trajectory.crossings
    with Writer.create(
        path, coords=coordinates(network), variables=variables, attrs=attrs
    ) as writer:
        writer.extend(
            "time",
            trajectory.time.numpy(),
            {"z": trajectory.z, "y": trajectory.y, "loss": trajectory.loss},
        )
        writer.extend(
            "crossing",
            np.arange(len(crossings)),
            {
                "crossing_time": [crossing.time for crossing in crossings],
                "crossing_coordinate": [crossing.coordinate for crossing in crossings],
                "crossing_entered": [crossing.entered for crossing in crossings],
                "crossing_sign": [crossing.sign for crossing in crossings],
            },
        )


def coordinates(network: DiagonalNetwork) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Labels of the entries of z, as coordinates of the axis `coordinate`."""
    columns: dict[str, list[Any]] = {"coordinate": [*map(str, network.coordinates)]}
    for name in ("layer", "head", "kind", "index"):
        columns[name] = [getattr(entry, name) for entry in network.coordinates]
    return {name: (("coordinate",), np.array(column)) for name, column in columns.items()}
