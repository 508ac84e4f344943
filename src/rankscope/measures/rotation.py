"""Rotation: how far leading directions have turned, and directions that were not there before."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.matrices import Reading, state_dict_tensors, stored_tensors
from rankscope.matrices.source import CheckpointTensors, opened
from rankscope.measures.protocol import Gauge, Moment, Subject, readable
from rankscope.snapshot.measuring import solver_of
from rankscope.store import Variable

INTRUDER = 0.5  # largest cosine of an intruder direction to any of the base's (shuttleworth2024)

Base = str | Path | nn.Module | Mapping[str, Tensor]


@dataclass(frozen=True)
class Rotation:
    """Follow how the leading subspace of each whole matrix turns.

    Subspaces lie on the shorter side of the matrix: left singular vectors if m <= n, else right
    ones. The agreement of two subspaces of r directions is |U^T U'|_F^2 / r: 1 if they are equal,
    0 if they are at right angles, and r / min(m, n) by chance.

    leading: number of leading directions.
    base: a checkpoint, state dict or model to compare with, such as the one that is fine-tuned.

    Stored for each matrix: `rotation_start` (agreement with the reference, by default the first
    snapshot), `rotation_last` (with the last snapshot), `rotation_base` if there is a base, and
    `intruders`, the number of leading directions whose cosine to each of the base's directions is
    below 0.5; the base is the reference if none is given. A tracker that keeps leading values does
    not count intruders, for which it would need all directions of the base. shuttleworth2024 takes
    left singular vectors of tall matrices too, as `rankscope.lora.intruders` does.
    """

    leading: int = 10
    base: Base | None = field(default=None, compare=False)
    name = "rotation"
    reduces = False

    def gauge(self, subject: Subject) -> Gauge:
        if self.leading < 1:
            raise ValueError(f"Rotation: leading is at least 1, got {self.leading}")
        return _Rotation(subject, self)


class _Rotation(Gauge):
    name = "rotation"

    def __init__(self, subject: Subject, options: Rotation) -> None:
        super().__init__()
        self._plan, self._whole, self._rank = subject.plan, subject.whole, options.leading
        self._base = _base_weights(options.base, self._whole)
        self._start: dict[str, Tensor] = {}
        self._of_base: dict[str, Tensor] = {}
        self._last: Mapping[str, Tensor] = {}
        described = str(options.base) if isinstance(options.base, str | Path) else "given weights"
        self.facts = {
            "leading": options.leading,
            "base": "reference" if options.base is None else described,
        }
        self.directions = {reading.name: options.leading for reading in self._whole}
        names = ["rotation_start", "rotation_last", "intruders"]
        names += ["rotation_base"] if self._base is not None else []
        real = np.dtype("float32")
        self.variables = {name: Variable(("step", "matrix"), real) for name in names}
        self.operations = 10.0 * sum(min(r.m, r.n) ** 3 for r in self._whole)

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        now = moment.directions
        reference = moment.reference or {}
        base = reference if self._base is None else self._base
        self._learn(self._start, reference, moment)
        known = self._start
        if self._base is not None:
            self._learn(self._of_base, base, moment)
            known = self._of_base
        rank = self._rank
        table = {name: np.full(len(self._plan.readings), math.nan) for name in self.variables}
        for row, reading in enumerate(self._plan.readings):
            name = reading.name
            if name not in now or reading.part_of is not None or not now[name].isfinite().all():
                continue
            U = now[name][:, :rank].double().cpu()
            if name in self._start:
                table["rotation_start"][row] = agreement(U, self._start[name][:, :rank])
            if name in self._last and self._last[name].shape == U.shape:
                table["rotation_last"][row] = agreement(U, self._last[name])
            if name in known and self._plan.leading is None:
                table["intruders"][row] = intruders(U, known[name])
            if name in known and self._base is not None:
                table["rotation_base"][row] = agreement(U, known[name][:, :rank])
        self._last = {name: U[:, :rank].double().cpu() for name, U in now.items()}
        return table

    def _learn(
        self, known: dict[str, Tensor], weights: Mapping[str, Tensor], moment: Moment
    ) -> None:
        """Decompose the matrices of other weights, once; all directions of the shorter side."""
        for reading in readable(self._whole, weights, moment.weights):
            if reading.name not in known:
                W = reading.view(weights[reading.parameter].detach().cpu()).W
                leading = self._plan.leading is not None
                rank = self._rank if leading else min(W.shape)
                svd = solver_of(self._plan)(
                    {reading.name: W},
                    ranks={reading.name: rank},
                    threads=moment.threads,
                    on_failure=lambda names: None,
                )[reading.name]
                known[reading.name] = (svd.Vh.mT if W.shape[0] > W.shape[1] else svd.U).float()


def agreement(U: Float[Tensor, "d r"], V: Float[Tensor, "d r"]) -> float:
    """|U^T V|_F^2 / r: mean squared cosine of the principal angles of two subspaces."""
    return float((U.mT @ V.to(U)).square().sum() / max(1, U.shape[1]))


def intruders(U: Float[Tensor, "d r"], base: Float[Tensor, "d k"]) -> int:
    """Number of directions whose cosine to each direction of the base is below 0.5."""
    cosines = (U.mT @ base.to(U)).abs().amax(1)
    return int((cosines < INTRUDER).sum())


def _base_weights(base: Any, readings: tuple[Reading, ...]) -> dict[str, Tensor] | None:
    """Return the tensors of the base that matrices are read from; ValueError if it has none."""
    if base is None:
        return None
    source = opened(base)
    names = [reading.parameter for reading in readings]
    tensors: Mapping[str, Tensor]
    if isinstance(source, nn.Module):
        tensors = stored_tensors(source)
    elif isinstance(source, Checkpoint):
        tensors = CheckpointTensors.within(source, known=names)
    else:
        tensors = state_dict_tensors(source, known=names)
    weights = {
        name: tensors[name].detach().to("cpu", copy=True) for name in names if name in tensors
    }
    if not weights:
        raise ValueError(
            f"Rotation: the base holds none of the model's matrices, such as {names[0]!r}; pass a "
            "checkpoint of the same model"
        )
    return weights
