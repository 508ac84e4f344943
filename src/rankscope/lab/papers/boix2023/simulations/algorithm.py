"""A run of Algorithm 1 of boix2023."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.lab.papers.boix2023.simulations.flow import coordinates
from rankscope.lab.papers.boix2023.simulations.task import Task, Toy, horizon
from rankscope.store import Variable, Writer
from rankscope.theory import Certificate, DiagonalNetwork, Stage, incremental

CERTIFICATE = tuple(field.name for field in fields(Certificate))

# Numbers of one stage; infinite times are stored as inf, a stage that did not converge as NaN.
NUMBERS = ("time", "until", "drive", "margin", "transition", "loss", *CERTIFICATE)


@dataclass(frozen=True)
class AlgorithmRun:
    """The stages of Algorithm 1 that begin before `horizon`, each committed at once."""

    task: Task
    stages: int

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        toy = self.task.build(seed)
        end = horizon(toy, self.stages)
        coords = coordinates(toy.network)
        with Writer.create(path, coords=coords, variables=stage_variables()) as writer:
            for stage in stages_before(toy, end):
                writer.append(stage.index, stage_values(stage, toy.network), along="stage")
                progress(min(stage.time / end, 1.0))


def stages_before(toy: Toy, end: float) -> Iterator[Stage]:
    """Yield the stages of Algorithm 1 that begin before `end`."""
    stages = incremental(toy.network, toy.network.p * 4)
    return takewhile(lambda stage: stage.time < end, stages)


def stage_variables() -> dict[str, Variable]:
    """Variables stage_*(stage) with the fields of a `Stage`."""
    along, both = ("stage",), ("stage", "coordinate")
    return {
        **{f"stage_{name}": Variable(along, np.float64) for name in NUMBERS},
        "stage_winner": Variable(along, np.int64, fill=-1),
        "stage_sign": Variable(along, np.int8),
        "stage_converged": Variable(along, np.int8),
        "stage_tied": Variable(along, np.int64),
        "stage_left": Variable(along, np.int64),
        "stage_remarks": Variable(along, str),
        "stage_z": Variable(both, np.float64),
        "stage_b": Variable(both, np.float64),
    }


def stage_values(stage: Stage, network: DiagonalNetwork) -> dict[str, Any]:
    """Return one row of each variable."""
    as_they_are = ("time", "until", "drive", "margin", "loss", "sign", "converged", "z", "b")
    return {
        **{f"stage_{name}": getattr(stage, name) for name in as_they_are},
        **{f"stage_{name}": getattr(stage.certificate, name) for name in CERTIFICATE},
        "stage_transition": stage.transition if stage.converged else math.nan,
        "stage_winner": -1 if stage.winner is None else stage.winner,
        "stage_tied": len(stage.tied),
        "stage_left": len(stage.left),
        "stage_remarks": " ".join(stage.remarks(network)),
    }
