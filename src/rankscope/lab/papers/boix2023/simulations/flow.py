"""A run of gradient flow from one alpha."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.lab.papers.boix2023.simulations.task import Task, Toy, horizon
from rankscope.store import Variable, Writer
from rankscope.theory import DiagonalNetwork, FullTrajectory, Trajectory, flow


@dataclass(frozen=True)
class FlowRun:
    """A gradient flow, stored as z, y(time, coordinate), loss(time) and crossing_*(crossing).

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
        attrs = trajectory_attrs(self.log10_alpha, trajectory)
        coords, crossings = coordinates(toy.network), trajectory.crossings
        with Writer.create(path, coords=coords, variables=variables, attrs=attrs) as writer:
            by_time = {name: getattr(trajectory, name) for name in ("z", "y", "loss")}
            writer.extend("time", trajectory.time.numpy(), by_time)
            by_crossing = {
                f"crossing_{name}": [getattr(crossing, name) for crossing in crossings]
                for name in ("time", "coordinate", "entered", "sign")
            }
            writer.extend("crossing", np.arange(len(crossings)), by_crossing)


def trajectory_attrs(log10_alpha: float, trajectory: Trajectory | FullTrajectory) -> dict[str, Any]:
    """Return the attributes of a stored trajectory: its start, its cost and how it ended."""
    return {
        "log10_alpha": log10_alpha,
        "gradient_evaluations": trajectory.gradient_evaluations,
        "finished": trajectory.finished,
        "message": trajectory.message,
    }


def flow_to_horizon(toy: Toy, log10_alpha: float, stages: int, **options: Any) -> Trajectory:
    """Follow the flow from alpha to the horizon of `stages`; pass `options` to `flow`."""
    until = horizon(toy, stages)
    return flow(toy.network, toy.u0, toy.v0, log10_alpha * math.log(10), until, **options)


def coordinates(network: DiagonalNetwork) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Labels of the entries of z, as coordinates of the axis `coordinate`."""
    columns: dict[str, list[Any]] = {"coordinate": [*map(str, network.coordinates)]}
    for name in ("layer", "head", "kind", "index"):
        columns[name] = [getattr(entry, name) for entry in network.coordinates]
    return {name: (("coordinate",), np.array(column)) for name, column in columns.items()}
